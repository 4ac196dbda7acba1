-- A store as format 1 wrote it. Never changed again.
CREATE TABLE state (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    revision INTEGER NOT NULL,
    compacted INTEGER NOT NULL
) STRICT;
INSERT INTO state VALUES (1, 4, 2);
CREATE TABLE leases (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    seconds INTEGER NOT NULL
) STRICT;
INSERT INTO leases VALUES (2, 60);
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    value BLOB NOT NULL,
    revision INTEGER NOT NULL,
    lease INTEGER REFERENCES leases (id)
) STRICT;
CREATE INDEX entries_of_a_lease ON entries (lease) WHERE lease IS NOT NULL;
INSERT INTO entries VALUES (2, CAST('/users/alice' AS BLOB), CAST('{"locked":false}' AS BLOB), 3, NULL);
INSERT INTO entries VALUES (3, CAST('/nodes/web1' AS BLOB), X'00FF', 4, 2);
CREATE TABLE changes (
    revision INTEGER NOT NULL,
    step INTEGER NOT NULL,
    key BLOB NOT NULL,
    value BLOB,
    lease INTEGER,
    PRIMARY KEY (revision, step)
) STRICT, WITHOUT ROWID;
INSERT INTO changes VALUES (3, 0, CAST('/users/alice' AS BLOB), CAST('{"locked":false}' AS BLOB), NULL);
INSERT INTO changes VALUES (4, 0, CAST('/tokens/t' AS BLOB), NULL, NULL);
INSERT INTO changes VALUES (4, 1, CAST('/nodes/web1' AS BLOB), X'00FF', 2);
PRAGMA application_id = 1718055796;
PRAGMA user_version = 1;
