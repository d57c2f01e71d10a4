"""Looks for this site's markers in stored text: response logs of other customers."""
