//! The planner in two: what is called while the page opens, and the rest, which follows.
//!
//! Both are one program in one memory. A call into the rest goes through a stub, by the number of the function in a table that
//! the rest fills when it is linked; a stub that is called before asks the script for the rest, which then waits for it:
//! nothing can be awaited within WebAssembly. What the rest calls of the first half it imports by number.
//! Binaryen's `wasm-split` works this way; npm's binaryen has none.

use std::collections::{HashMap, HashSet};

use anyhow::{Context as _, Result, ensure};
use walrus::ir::{UnaryOp, Value, Visitor, dfs_in_order};
use walrus::{
    ConstExpr, ElementItems, ElementKind, ExportItem, FunctionBuilder, FunctionId, FunctionKind, GlobalKind,
    ImportedFunction, LocalId, Module, RefType, ValType,
};

use crate::later::Later;

/// What the script lends to the first half, and under which name: `load()` links the rest.
pub const LENT: (&str, &str) = ("rest", "load");

/// What the rest imports from: the first half.
const FIRST: &str = "first";

/// The table that the rest fills.
const TABLE: &str = "rest";

/// Set to 1 by the script once the rest is linked.
const LINKED: &str = "linked";

/// The planner's WebAssembly in two.
#[derive(Debug)]
pub struct Halves {
    /// What starts.
    pub first: Vec<u8>,
    /// What is linked to it.
    pub rest: Vec<u8>,
}

/// Cuts it; `names` keeps the names of functions.
///
/// # Errors
/// It is no WebAssembly; nothing of it waits; it is made of what is not followed here.
pub fn cut(wasm: &[u8], later: &Later, names: bool) -> Result<Halves> {
    let read = || Module::from_buffer(wasm).context("the planner's WebAssembly cannot be read");
    let (mut first, mut rest) = (read()?, read()?);
    let plan = Plan::new(&first, later);
    ensure!(!plan.entries.is_empty(), "nothing of the planner waits: {} is of another one", crate::later::NAME);
    // What both modules number alike is one thing; each has its own identifiers.
    let twin = Twins::of(&first, &rest);
    plan.make_first(&mut first)?;
    plan.make_rest(&mut rest, &twin)?;
    let emitted = [&mut first, &mut rest].map(|module| {
        walrus::passes::gc::run(module);
        for function in module.funcs.iter_mut() {
            let shown = |name: String| format!("{:#}", rustc_demangle::demangle(&name));
            function.name = function.name.take().filter(|_| names).map(shown);
        }
        module.emit_wasm()
    });
    let [first, rest] = emitted;
    Ok(Halves { first, rest })
}

/// The functions that a function names.
#[derive(Default)]
struct Named(HashSet<FunctionId>);

impl Visitor<'_> for Named {
    fn visit_function_id(&mut self, function: &FunctionId) {
        self.0.insert(*function);
    }
}

/// Which function goes where, by the identifiers of the first module.
struct Plan {
    /// Those that wait.
    waiting: HashSet<FunctionId>,
    /// Those of them that the first half names, in the order of their numbers.
    entries: Vec<FunctionId>,
    /// Those of the first half that the rest names, in the order of their numbers.
    shared: Vec<FunctionId>,
}

impl Plan {
    fn new(module: &Module, later: &Later) -> Self {
        let locals = || module.funcs.iter_local().map(|(id, _)| id);
        let waiting: HashSet<FunctionId> =
            locals().filter(|id| Some(*id) != module.start && later.has(module.funcs.get(*id))).collect();
        let (mut by_first, mut by_rest) = (Named::default(), Named::default());
        for (id, function) in module.funcs.iter_local() {
            let by = if waiting.contains(&id) { &mut by_rest } else { &mut by_first };
            dfs_in_order(by, function, function.entry_block());
        }
        // Whoever calls through a table or from outside calls the first half.
        by_first.0.extend(module.elements.iter().flat_map(|element| functions(&element.items)));
        by_first.0.extend(module.exports.iter().filter_map(|export| match export.item {
            ExportItem::Function(id) => Some(id),
            _ => None,
        }));
        let entries = locals().filter(|id| waiting.contains(id) && by_first.0.contains(id)).collect();
        let all = module.funcs.iter().map(walrus::Function::id);
        let shared = all.filter(|id| !waiting.contains(id) && by_rest.0.contains(id)).collect();
        Self { waiting, entries, shared }
    }

    /// Puts stubs in the place of what waits, and exports what the rest needs.
    fn make_first(&self, module: &mut Module) -> Result<()> {
        for (at, id) in module.memories.iter().map(walrus::Memory::id).enumerate() {
            module.exports.add(&format!("memory{at}"), id);
        }
        for (at, id) in module.tables.iter().map(walrus::Table::id).enumerate() {
            module.exports.add(&format!("table{at}"), id);
        }
        for (at, id) in module.globals.iter().map(walrus::Global::id).enumerate() {
            module.exports.add(&format!("global{at}"), id);
        }
        for (at, id) in self.shared.iter().enumerate() {
            module.exports.add(&at.to_string(), *id);
        }

        let places = u64::try_from(self.entries.len())?;
        let table = module.tables.add_local(false, places, Some(places), RefType::FUNCREF);
        module.exports.add(TABLE, table);
        let linked = module.globals.add_local(ValType::I32, true, false, ConstExpr::Value(Value::I32(0)));
        module.exports.add(LINKED, linked);
        let nothing = module.types.add(&[], &[]);
        let (load, _) = module.add_import_func(LENT.0, LENT.1, nothing);
        // Gives back the number that it is given, with the rest linked: so that a stub is short, of which there are thousands.
        let number = module.locals.add(ValType::I32);
        let mut ready = FunctionBuilder::new(&mut module.types, &[ValType::I32], &[ValType::I32]);
        ready.func_body().global_get(linked).unop(UnaryOp::I32Eqz).if_else(
            None,
            |then| {
                then.call(load);
            },
            |_| {},
        );
        ready.func_body().local_get(number);
        let ready = ready.finish(vec![number], &mut module.funcs);

        for (at, id) in self.entries.iter().enumerate() {
            let ty = module.funcs.get(*id).ty();
            let (parameters, results) = (module.types.params(ty).to_vec(), module.types.results(ty).to_vec());
            let arguments: Vec<LocalId> = parameters.iter().map(|ty| module.locals.add(*ty)).collect();
            let mut stub = FunctionBuilder::new(&mut module.types, &parameters, &results);
            let mut body = stub.func_body();
            for argument in &arguments {
                body.local_get(*argument);
            }
            body.i32_const(i32::try_from(at)?).call(ready).call_indirect(ty, table);
            let stub = stub.local_func(arguments);
            module.funcs.get_mut(*id).kind = FunctionKind::Local(stub);
        }
        let entries: HashSet<FunctionId> = self.entries.iter().copied().collect();
        for id in self.waiting.difference(&entries) {
            module.funcs.delete(*id);
        }
        Ok(())
    }

    /// Leaves what waits, imports what that needs, and fills the table of the first half.
    fn make_rest(&self, module: &mut Module, twin: &Twins) -> Result<()> {
        for id in module.exports.iter().map(walrus::Export::id).collect::<Vec<_>>() {
            module.exports.delete(id);
        }
        for id in module.elements.iter().map(walrus::Element::id).collect::<Vec<_>>() {
            module.elements.delete(id);
        }
        for id in module.data.iter().map(walrus::Data::id).collect::<Vec<_>>() {
            module.data.delete(id);
        }
        for id in module.imports.iter().map(walrus::Import::id).collect::<Vec<_>>() {
            module.imports.delete(id);
        }
        module.start = None;
        for (at, id) in module.memories.iter().map(walrus::Memory::id).collect::<Vec<_>>().into_iter().enumerate() {
            let import = module.imports.add(FIRST, &format!("memory{at}"), id);
            let memory = module.memories.get_mut(id);
            memory.import = Some(import);
            memory.data_segments.clear();
        }
        for (at, id) in module.tables.iter().map(walrus::Table::id).collect::<Vec<_>>().into_iter().enumerate() {
            let import = module.imports.add(FIRST, &format!("table{at}"), id);
            let table = module.tables.get_mut(id);
            table.import = Some(import);
            table.elem_segments.clear();
        }
        for (at, id) in module.globals.iter().map(walrus::Global::id).collect::<Vec<_>>().into_iter().enumerate() {
            let import = module.imports.add(FIRST, &format!("global{at}"), id);
            module.globals.get_mut(id).kind = GlobalKind::Import(import);
        }
        let mut kept: HashSet<FunctionId> =
            self.waiting.iter().map(|id| twin.of_function(*id)).collect::<Result<_>>()?;
        for (at, id) in self.shared.iter().enumerate() {
            let id = twin.of_function(*id)?;
            let ty = module.funcs.get(id).ty();
            let import = module.imports.add(FIRST, &at.to_string(), id);
            module.funcs.get_mut(id).kind = FunctionKind::Import(ImportedFunction { import, ty });
            kept.insert(id);
        }
        for id in module.funcs.iter().map(walrus::Function::id).collect::<Vec<_>>() {
            if !kept.contains(&id) {
                module.funcs.delete(id);
            }
        }
        let places = u64::try_from(self.entries.len())?;
        let (table, _) = module.add_import_table(FIRST, TABLE, false, places, Some(places), RefType::FUNCREF);
        let entries = self.entries.iter().map(|id| twin.of_function(*id)).collect::<Result<_>>()?;
        let start = ElementKind::Active { table, offset: ConstExpr::Value(Value::I32(0)) };
        let element = module.elements.add(start, ElementItems::Functions(entries));
        module.tables.get_mut(table).elem_segments.insert(element);
        Ok(())
    }
}

/// The functions in a segment of a table.
fn functions(items: &ElementItems) -> Vec<FunctionId> {
    match items {
        ElementItems::Functions(all) => all.clone(),
        ElementItems::Expressions(_, all) => all
            .iter()
            .filter_map(|expression| match expression {
                ConstExpr::RefFunc(id) => Some(*id),
                _ => None,
            })
            .collect(),
    }
}

/// Of each function of one module that of another, read from the same bytes.
struct Twins(HashMap<FunctionId, FunctionId>);

impl Twins {
    fn of(one: &Module, other: &Module) -> Self {
        let ids = |module: &Module| module.funcs.iter().map(walrus::Function::id).collect::<Vec<_>>();
        Self(ids(one).into_iter().zip(ids(other)).collect())
    }

    fn of_function(&self, id: FunctionId) -> Result<FunctionId> {
        self.0.get(&id).copied().context("the two halves are not of one program")
    }
}

#[cfg(test)]
mod tests {
    use walrus::ImportKind;

    use super::*;
    use crate::later::mark;

    /// `early(n) = late(n)`, exported; `late(n) = helper(n)`, which also stands in a table; `helper(n) = n`.
    fn program() -> Vec<u8> {
        let mut module = Module::default();
        let memory = module.memories.add_local(false, false, 1, None, None);
        module.exports.add("memory", memory);
        let mut function = |name: &str, calls: Option<FunctionId>| {
            let argument = module.locals.add(ValType::I32);
            let mut made = FunctionBuilder::new(&mut module.types, &[ValType::I32], &[ValType::I32]);
            made.name(name.to_owned()).func_body().local_get(argument);
            if let Some(called) = calls {
                made.func_body().call(called);
            }
            made.finish(vec![argument], &mut module.funcs)
        };
        let helper = function("helper", None);
        let late = function("late", Some(helper));
        let early = function("early", Some(late));
        module.exports.add("early", early);
        let table = module.tables.add_local(false, 1, Some(1), RefType::FUNCREF);
        let start = ElementKind::Active { table, offset: ConstExpr::Value(Value::I32(0)) };
        let element = module.elements.add(start, ElementItems::Functions(vec![late]));
        module.tables.get_mut(table).elem_segments.insert(element);
        module.emit_wasm()
    }

    fn later(names: &[&str]) -> Later {
        let lines: Vec<String> = names.iter().map(|name| format!("{:08x}", mark(name))).collect();
        Later::read(&lines.join("\n")).unwrap()
    }

    /// Names of what is imported, and of functions that are in it.
    fn parts(wasm: &[u8]) -> (Vec<String>, Vec<String>) {
        let module = Module::from_buffer(wasm).unwrap();
        let imports = module.imports.iter().map(|i| format!("{}.{}", i.module, i.name)).collect();
        let mut names: Vec<String> =
            module.funcs.iter_local().filter_map(|(id, _)| module.funcs.get(id).name.clone()).collect();
        names.sort();
        (imports, names)
    }

    #[test]
    fn what_waits_is_in_the_rest_and_asked_for_by_a_stub() {
        let Halves { first, rest } = cut(&program(), &later(&["late"]), true).unwrap();
        let (imports, names) = parts(&first);
        assert_eq!(imports, ["rest.load"]);
        assert_eq!(names, ["early", "helper", "late"]);
        let (imports, names) = parts(&rest);
        assert_eq!(names, ["late"]);
        assert!(imports.contains(&"first.0".to_owned()) && imports.contains(&"first.rest".to_owned()), "{imports:?}");

        // Each import of the rest is an export of the first half.
        let (first, rest) = (Module::from_buffer(&first).unwrap(), Module::from_buffer(&rest).unwrap());
        for import in rest.imports.iter() {
            let export = first.exports.iter().find(|export| export.name == import.name).unwrap();
            let alike = matches!(
                (&import.kind, &export.item),
                (ImportKind::Function(_), ExportItem::Function(_))
                    | (ImportKind::Table(_), ExportItem::Table(_))
                    | (ImportKind::Memory(_), ExportItem::Memory(_))
                    | (ImportKind::Global(_), ExportItem::Global(_))
            );
            assert!(alike, "{}", import.name);
        }
        assert!(first.exports.iter().any(|export| export.name == LINKED));
    }

    #[test]
    fn names_are_left_out_where_nobody_reads_them() {
        let Halves { first, rest } = cut(&program(), &later(&["late"]), false).unwrap();
        assert!(parts(&first).1.is_empty() && parts(&rest).1.is_empty());
    }

    #[test]
    fn a_list_of_another_planner_is_refused() {
        assert!(
            cut(&program(), &later(&["other"]), true).unwrap_err().to_string().contains("nothing of the planner waits")
        );
        assert!(cut(b"no wasm", &later(&["late"]), true).is_err());
    }
}
