-- Measurements, newest last. Sizes are bytes. `seq` is the order of arrival and the only trace of when.
CREATE TABLE measurement (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    -- SHA-256 of the record's canonical JSON: giving it twice is giving it once.
    id TEXT NOT NULL UNIQUE,
    -- The day it came, UTC. Never the moment, never from whom.
    received TEXT NOT NULL,
    -- Grows with every change of the row, so that a reader can ask for what is new to it.
    change BIGINT NOT NULL,
    -- 'accepted' or 'quarantined', with the reasons as a JSON list.
    status TEXT NOT NULL CHECK (status IN ('accepted', 'quarantined')),
    reasons TEXT NOT NULL,
    -- Records of the same key should show the same figures; NULL where nothing can be compared.
    neighbourhood TEXT,
    -- What it is filtered and grouped by.
    family TEXT NOT NULL,
    model TEXT NOT NULL,
    task TEXT NOT NULL,
    gpu TEXT NOT NULL,
    device_kind TEXT NOT NULL,
    "precision" TEXT NOT NULL,
    optimizer TEXT NOT NULL,
    checkpointing TEXT NOT NULL,
    attention TEXT NOT NULL,
    training TEXT NOT NULL,
    torch TEXT NOT NULL,
    measured_allocated BIGINT,
    measured_reserved BIGINT,
    measured_process BIGINT,
    estimated_allocated BIGINT,
    estimated_reserved BIGINT,
    estimated_process BIGINT,
    -- The summary that lists give, as JSON.
    point TEXT NOT NULL,
    -- The version of Plimsoll that made the summary and its estimate; another one makes them anew.
    engine TEXT NOT NULL
);

CREATE UNIQUE INDEX measurement_change ON measurement (change);
CREATE INDEX measurement_engine ON measurement (engine);
CREATE INDEX measurement_neighbourhood ON measurement (neighbourhood, seq);

-- The records themselves, apart from what is scanned.
CREATE TABLE record (
    seq BIGINT NOT NULL PRIMARY KEY REFERENCES measurement (seq),
    content TEXT NOT NULL
);

-- One row: the number of the last change.
CREATE TABLE revision (
    one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
    last BIGINT NOT NULL
);
INSERT INTO revision (one, last) VALUES (1, 0);

-- Who may upload. The token itself is shown once and kept nowhere; days, not moments.
CREATE TABLE token (
    id TEXT NOT NULL PRIMARY KEY,
    sha256 TEXT NOT NULL,
    label TEXT NOT NULL,
    created TEXT NOT NULL,
    revoked TEXT,
    last_used TEXT
);
