//! Writing an empty shared library for x86-64 Linux: a name, the versions and functions that are asked of it, and in each
//! function nothing but a call of the stand-in with the function's name.

use std::collections::BTreeSet;

use object::Endianness;
use object::elf;
use object::write::StringId;
use object::write::elf::{FileHeader, ProgramHeader, Rel, SectionHeader, Sym, Verdef, Writer};

use crate::imports::Functions;

/// What a library is to be.
#[derive(Debug)]
pub(crate) struct Stub<'a> {
    /// Its own name, by which the loader knows that it need not look for another: `libcudart.so.13`.
    pub name: &'a str,
    /// The library that answers, by its path.
    pub needs: &'a str,
    /// Its functions.
    pub functions: &'a Functions,
}

/// What each function calls, with its own name.
const CALLED: &str = "plimsoll_hollow_absent";
/// Bytes of code in each function.
const CODE: u64 = 16;
/// The linker's page.
const PAGE: u64 = 4096;

impl Stub<'_> {
    /// The library's bytes.
    ///
    /// # Errors
    /// If names and code do not fit into an ELF file, which no real list of functions reaches.
    pub(crate) fn to_elf(&self) -> object::write::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut w = Writer::new(Endianness::Little, true, &mut bytes);

        // Strings. The first version is the library's own name, as linkers have it.
        let versions: BTreeSet<&str> = self.functions.values().flatten().map(String::as_str).collect();
        let versions: Vec<&str> = versions.into_iter().collect();
        let own = w.add_dynamic_string(self.name.as_bytes());
        let needs = w.add_dynamic_string(self.needs.as_bytes());
        let called = w.add_dynamic_string(CALLED.as_bytes());
        let version_names: Vec<StringId> = versions.iter().map(|v| w.add_dynamic_string(v.as_bytes())).collect();
        let names: Vec<StringId> = self.functions.keys().map(|n| w.add_dynamic_string(n.as_bytes())).collect();

        // Places: headers and tables, then code, then what the loader writes to.
        w.reserve_null_section_index();
        let text_name = w.add_section_name(b".text");
        let got_name = w.add_section_name(b".got");
        let rela_name = w.add_section_name(b".rela.dyn");
        w.reserve_hash_section_index();
        w.reserve_dynsym_section_index();
        w.reserve_dynstr_section_index();
        w.reserve_gnu_versym_section_index();
        w.reserve_gnu_verdef_section_index();
        w.reserve_section_index();
        let text_index = w.reserve_section_index();
        w.reserve_dynamic_section_index();
        w.reserve_section_index();
        w.reserve_shstrtab_section_index();

        w.reserve_file_header();
        w.reserve_program_headers(5);
        w.reserve_null_dynamic_symbol_index();
        let called_index = w.reserve_dynamic_symbol_index();
        for _ in &names {
            w.reserve_dynamic_symbol_index();
        }
        let symbols = names.len() as u32 + 2;
        let buckets = (symbols / 2).max(1);
        let hash_at = w.reserve_hash(buckets, symbols);
        let symbols_at = w.reserve_dynsym();
        let strings_at = w.reserve_dynstr()?;
        let versions_at = w.reserve_gnu_versym();
        let definitions = versions.len() as u16 + 1;
        let definitions_at = w.reserve_gnu_verdef(definitions, usize::from(definitions));
        let relocation_at = w.reserve_relocations(1, true);
        let tables_end = w.reserved_len();
        w.reserve_until(tables_end.next_multiple_of(PAGE));
        let code_len = CODE * names.len() as u64;
        let code_at = w.reserve(code_len, PAGE);
        w.reserve_until((code_at + code_len.max(1)).next_multiple_of(PAGE));
        let dynamic_at = w.reserve_dynamic(14);
        let slot_at = w.reserve(8, 8);
        let data_end = w.reserved_len();
        w.reserve_shstrtab()?;
        w.reserve_section_headers();

        w.write_file_header(&FileHeader {
            os_abi: elf::ELFOSABI_NONE,
            abi_version: 0,
            e_type: elf::ET_DYN,
            e_machine: elf::EM_X86_64,
            e_entry: 0,
            e_flags: elf::FileFlags(0),
        })?;
        w.write_align_program_headers();
        let segment = |p_type, p_flags, from: u64, to: u64, p_align| ProgramHeader {
            p_type,
            p_flags,
            p_offset: from,
            p_vaddr: from,
            p_paddr: from,
            p_filesz: to - from,
            p_memsz: to - from,
            p_align,
        };
        let (read, write, execute) = (elf::PF_R, elf::PF_R | elf::PF_W, elf::PF_R | elf::PF_X);
        w.write_program_header(&segment(elf::PT_LOAD, read, 0, tables_end, PAGE));
        w.write_program_header(&segment(elf::PT_LOAD, execute, code_at, code_at + code_len.max(1), PAGE));
        w.write_program_header(&segment(elf::PT_LOAD, write, dynamic_at, data_end, PAGE));
        w.write_program_header(&segment(elf::PT_DYNAMIC, write, dynamic_at, slot_at, 8));
        // Without this header the whole process would get a stack that can be executed.
        w.write_program_header(&segment(elf::PT_GNU_STACK, write, 0, 0, 16));

        let hashes: Vec<u32> = std::iter::once(CALLED.as_bytes())
            .chain(self.functions.keys().map(String::as_bytes))
            .map(elf::hash)
            .collect();
        w.write_hash(buckets, symbols, |i| (i > 0).then(|| hashes[i as usize - 1]));

        w.write_null_dynamic_symbol();
        let symbol = |name: u32, section, at: u64, size: u64| Sym {
            section,
            st_name: name,
            st_info: elf::SymbolInfo::new(elf::STB_GLOBAL, elf::STT_FUNC),
            st_other: elf::SymbolOther(0),
            st_shndx: elf::SHN_UNDEF,
            st_value: at,
            st_size: size,
        };
        let name_at: Vec<u32> = names.iter().map(|&id| w.dynamic_string_offset(Some(id))).collect();
        let called = w.dynamic_string_offset(Some(called));
        w.write_dynamic_symbol(&symbol(called, None, 0, 0));
        for (i, &name) in name_at.iter().enumerate() {
            w.write_dynamic_symbol(&symbol(name, Some(text_index.0), code_at + CODE * i as u64, CODE));
        }
        w.write_dynstr();

        w.write_null_gnu_versym();
        w.write_gnu_versym(elf::VER_NDX_GLOBAL.into());
        for version in self.functions.values() {
            let place = version.as_deref().and_then(|v| versions.iter().position(|known| *known == v));
            // The library's own name is definition 1, which is what functions without a version have.
            w.write_gnu_versym(elf::VersionIndex(place.map_or(1, |p| p as u16 + 2)).into());
        }
        w.write_align_gnu_verdef();
        let base = std::iter::once((self.name, own, elf::VER_FLG_BASE));
        let rest = versions.iter().zip(&version_names).map(|(&v, &id)| (v, id, elf::VersionFlags(0)));
        for (i, (version, id, flags)) in base.chain(rest).enumerate() {
            let name = w.dynamic_string_offset(Some(id));
            w.write_gnu_verdef(&Verdef {
                version: elf::VER_DEF_CURRENT,
                flags,
                index: elf::VersionIndex(i as u16 + 1),
                aux_count: 1,
                name,
                hash: elf::hash(version.as_bytes()),
            });
        }
        w.write_align_relocation();
        w.write_relocation(
            true,
            &Rel { r_offset: slot_at, r_sym: called_index.0, r_type: elf::R_X86_64_GLOB_DAT, r_addend: 0 },
        );

        w.pad_until(code_at);
        for (i, &name) in name_at.iter().enumerate() {
            let at = code_at + CODE * i as u64;
            w.write(&function(at, strings_at + u64::from(name), slot_at));
        }
        w.pad_until(dynamic_at);
        w.write_align_dynamic();
        w.write_dynamic_string(elf::DT_SONAME, own)?;
        w.write_dynamic_string(elf::DT_NEEDED, needs)?;
        for (tag, value) in [
            (elf::DT_HASH, hash_at),
            (elf::DT_SYMTAB, symbols_at),
            (elf::DT_SYMENT, 24),
            (elf::DT_STRTAB, strings_at),
            (elf::DT_STRSZ, u64::from(w.dynstr_len())),
            (elf::DT_VERSYM, versions_at),
            (elf::DT_VERDEF, definitions_at),
            (elf::DT_VERDEFNUM, u64::from(definitions)),
            (elf::DT_RELA, relocation_at),
            (elf::DT_RELASZ, 24),
            (elf::DT_RELAENT, 24),
            (elf::DT_NULL, 0),
        ] {
            w.write_dynamic(tag, value)?;
        }
        w.pad_until(slot_at);
        w.write(&[0; 8]);

        // Compilers that link against the library read its sections; the loader does not.
        w.write_shstrtab();
        w.write_null_section_header();
        w.write_hash_section_header(hash_at);
        w.write_dynsym_section_header(symbols_at, 1);
        w.write_dynstr_section_header(strings_at);
        w.write_gnu_versym_section_header(versions_at);
        w.write_gnu_verdef_section_header(definitions_at);
        let alloc = elf::SHF_ALLOC;
        let dynsym = w.dynsym_index().0;
        for (name, sh_type, sh_flags, at, size, link, entry) in [
            (rela_name, elf::SHT_RELA, alloc, relocation_at, 24, dynsym, 24),
            (text_name, elf::SHT_PROGBITS, alloc | elf::SHF_EXECINSTR, code_at, code_len, 0, 0),
        ] {
            let sh_name = w.section_name_offset(Some(name));
            w.write_section_header(&section(sh_name, sh_type, sh_flags, at, size, link, entry));
        }
        w.write_dynamic_section_header(dynamic_at);
        let sh_name = w.section_name_offset(Some(got_name));
        w.write_section_header(&section(sh_name, elf::SHT_PROGBITS, alloc | elf::SHF_WRITE, slot_at, 8, 0, 8));
        w.write_shstrtab_section_header();
        Ok(bytes)
    }
}

fn section(
    sh_name: u32,
    sh_type: elf::SectionType,
    sh_flags: elf::SectionFlags,
    at: u64,
    sh_size: u64,
    sh_link: u32,
    sh_entsize: u64,
) -> SectionHeader {
    SectionHeader {
        sh_name,
        sh_type,
        sh_flags,
        sh_addr: at,
        sh_offset: at,
        sh_size,
        sh_link,
        sh_info: 0,
        sh_addralign: 8,
        sh_entsize,
    }
}

/// `lea rdi, [rip + name]; jmp [rip + slot]`, filled up with `int3`.
fn function(at: u64, name: u64, slot: u64) -> [u8; CODE as usize] {
    let mut code = [0xcc; CODE as usize];
    // Distances count from the end of each instruction; all lie within one small file.
    let distance = |to: u64, from: u64| (to.wrapping_sub(from) as i32).to_le_bytes();
    code[..3].copy_from_slice(&[0x48, 0x8d, 0x3d]);
    code[3..7].copy_from_slice(&distance(name, at + 7));
    code[7..9].copy_from_slice(&[0xff, 0x25]);
    code[9..13].copy_from_slice(&distance(slot, at + 13));
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::imports::exports;

    #[test]
    fn what_is_written_is_read_back() {
        let functions: Functions =
            [("cudaMalloc".to_owned(), Some("libcudart.so.13".to_owned())), ("ncclSend".to_owned(), None)].into();
        let stub = Stub { name: "libcudart.so.13", needs: "/x/libplimsoll_hollow.so", functions: &functions };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libcudart.so.13");
        std::fs::write(&path, stub.to_elf().unwrap()).unwrap();
        let names: Vec<String> = exports(&path).unwrap().into_iter().collect();
        assert_eq!(names, ["cudaMalloc", "ncclSend"]);
    }

    #[test]
    fn a_function_calls_with_its_name() {
        let code = function(0x1000, 0x200, 0x2000);
        assert_eq!(code[3..7], (0x200i32 - 0x1007).to_le_bytes());
        assert_eq!(code[9..13], (0x2000i32 - 0x100d).to_le_bytes());
    }
}
