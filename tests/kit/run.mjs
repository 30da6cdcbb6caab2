// Runs a WebAssembly program that has nothing but `main`, and lends it what it cannot do: `node run.mjs PROGRAM.wasm`.
import { readFile } from "node:fs/promises";

const host = {
  print: (start, length) => console.log(new TextDecoder().decode(new Uint8Array(program.memory.buffer, start, length))),
  now: () => performance.now(),
};
const { instance } = await WebAssembly.instantiate(await readFile(process.argv[2]), { host });
const program = instance.exports;
try {
  process.exitCode = program.main(0, 0);
} catch (error) {
  console.error(String(error));
  process.exitCode = 101;
}
