"""Nothing but the module that is started."""
