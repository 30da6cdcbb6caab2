// Starts the planner. The head of the page says where its script and its wasm are, and has the browser fetch both early.
const address = (link) => document.head.querySelector(link).href;
const planner = await import(address("link[rel=modulepreload]"));
const wasm = address("link[rel=preload][type='application/wasm']");
// What is given away is in two halves, and starts with the first; what is built to be looked at is in one.
await (planner.start ? planner.start(wasm) : planner.default({ module_or_path: wasm }));

// From the next visit on it opens without a network. Where the browser has no place for that, nothing is lost.
const keep = () => navigator.serviceWorker?.register("offline.js").catch(() => {});
if (self.requestIdleCallback) requestIdleCallback(keep);
else setTimeout(keep, 2000);
