"""The figures of a report: small SVG pictures that follow the page's colours."""
