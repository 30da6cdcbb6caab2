// Runs the planner's own wasm a second time, away from the page. The page says where its script and wasm are; the
// wasm then listens for errands itself and answers "ready".
self.onmessage = async ({ data }) => {
  try {
    const planner = await import(data.script);
    await (planner.start ? planner.start(data.wasm) : planner.default({ module_or_path: data.wasm }));
  } catch (error) {
    // Thrown where the page's error listener hears it; a rejected promise would go unheard.
    setTimeout(() => {
      throw error;
    });
  }
};
