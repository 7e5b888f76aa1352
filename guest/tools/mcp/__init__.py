"""Tools of servers that speak the Model Context Protocol, named in the configuration."""
