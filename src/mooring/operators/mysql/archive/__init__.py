"""The continuous archive of the binary log, and what is restored from it.

events        the layout of events
transactions  events put together to whole transactions; holes
stream        events from a server, as a replica receives them
store         segments, chains and their index in a store
sources       which server the archive is read from
archiver      the process that reads and writes
target        which transaction a GTID or a time means, and which segments lead there
relay         a piece of the archive as relay logs of a restored server
"""
