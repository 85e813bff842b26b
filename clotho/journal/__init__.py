"""The write-once journal, its numbered logs, and the stores that hold it."""

from clotho.journal.journal import Journal as Journal
