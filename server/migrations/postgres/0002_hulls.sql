-- Recorded models, by the SHA-256 of their bytes: giving one twice is giving it once.
CREATE TABLE hull (
    id TEXT NOT NULL PRIMARY KEY,
    -- The day it came, UTC. Never the moment, never from whom.
    received TEXT NOT NULL,
    -- The file's bytes.
    content BYTEA NOT NULL
);
