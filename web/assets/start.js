// Starts the planner. The head of the page says where its script and its wasm are, and has the browser fetch both early.
const address = (link) => document.head.querySelector(link).href;
const planner = await import(address("link[rel=modulepreload]"));
await planner.default({ module_or_path: address("link[rel=preload][type='application/wasm']") });
