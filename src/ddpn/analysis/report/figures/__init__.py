"""The figures of a report: small SVG images that follow the page's colours."""
