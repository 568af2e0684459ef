"""The mathematics of speculation: acceptance, intervals, quantiles, comparison and verdict. Pure."""
