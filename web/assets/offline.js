// Keeps the planner's files in the browser, so that it opens without a network after the first visit. The bundler writes
// into the next two lines what they are.
const VERSION = "";
const FILES = [];

const SCOPE = self.registration.scope;
const OURS = `plimsoll ${SCOPE} `;
const CACHE = OURS + VERSION;

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
});

// Begins when no page of the version before is open any more: what that one may still ask for is there until then.
self.addEventListener("activate", (event) => {
  const begin = async () => {
    const names = await caches.keys();
    await Promise.all(names.filter((name) => name.startsWith(OURS) && name !== CACHE).map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(begin());
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || !request.url.startsWith(SCOPE)) return;
  const name = request.url.slice(SCOPE.length).split(/[?#]/)[0];
  const file = request.mode === "navigate" ? "./" : name;
  if (!FILES.includes(file)) return;
  const kept = () => caches.open(CACHE).then((cache) => cache.match(file));
  // What has a hash of its content in its name never changes; of everything else the host may have a newer one.
  const forEver = /-[0-9a-f]{16}\.\w+$/.test(file);
  const given = forEver
    ? kept().then((found) => found ?? fetch(request))
    : fetch(request).catch(async (error) => (await kept()) ?? Promise.reject(error));
  event.respondWith(given);
});
