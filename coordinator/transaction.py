"""One transaction of SQLite."""

import sqlite3


class Transaction:
    """Takes the write lock at once, so that two processes wait for each other instead of failing.

    Inside another one it is a part of that.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._is_part = connection.in_transaction

    def __enter__(self) -> None:
        if not self._is_part:
            self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._is_part:
            self._db.execute("COMMIT" if kind is None else "ROLLBACK")
