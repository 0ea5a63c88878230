"""What assets and checks share: stores, access to the event log, metadata, progress."""
