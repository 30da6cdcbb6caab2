
// The planner in two halves: what is called while the page opens, and the rest. The bundler appends this to the planner's
// script, has the first half call `loadRest`, and writes the name of the other half's file into the next line.
const REST = "";

const restAddress = new URL(REST, import.meta.url).href;

const compiled = async (address, options) => {
  const response = await fetch(address, options);
  if (!response.ok) throw new Error(`${address} cannot be had (${response.status})`);
  const named = response.headers.get("content-type")?.startsWith("application/wasm");
  return named ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
};

// The rest where it is there before it can be linked.
let prepared;

const linkRest = (module) => {
  if (wasm.linked.value) return;
  new WebAssembly.Instance(module, { first: wasm });
  wasm.linked.value = 1;
};

// Something of the rest is called before it is there. WebAssembly cannot await it, so all stands still until it is; a page may
// then ask for text alone, of which each character is a byte.
const loadRest = () => {
  try {
    if (prepared) return linkRest(prepared);
    const request = new XMLHttpRequest();
    request.open("GET", restAddress, false);
    request.overrideMimeType("text/plain; charset=x-user-defined");
    request.send();
    if (request.status !== 200) throw new Error(`${restAddress} cannot be had (${request.status})`);
    linkRest(new WebAssembly.Module(Uint8Array.from(request.responseText, (character) => character.charCodeAt(0) & 255)));
  } catch (error) {
    // Whoever called does not come back: the page says that it has stopped, as after a panic.
    globalThis.document?.documentElement.setAttribute("data-state", "wrecked");
    throw error;
  }
};

// Fetches the rest before anybody calls for it. Where that fails, whoever does tries again.
const prepareRest = async () => {
  try {
    prepared = await compiled(restAddress, { priority: "low" });
  } catch {
    return;
  }
  if (wasm) linkRest(prepared);
};

/** Starts the planner: the first half when it is there, and the rest follows what that paints. */
export async function start(first) {
  const module = await compiled(first);
  // A worker has nobody who waits for its start. And what is kept for times without a network is soon there, while a request
  // that nothing can be awaited beside passes by what keeps it.
  const whole = !globalThis.document || navigator.serviceWorker?.controller;
  if (whole) await prepareRest();
  await __wbg_init({ module_or_path: module });
  if (!prepared) requestAnimationFrame(() => setTimeout(prepareRest));
  else linkRest(prepared);
}
