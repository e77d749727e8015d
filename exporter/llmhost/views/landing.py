"""The plain page at `/`: what this is, and where to go. It says nothing about the host."""

from html import escape

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>llmhost exporter</title>
</head>
<body>
<h1>llmhost exporter</h1>
<p>Which systemd unit holds which GPU memory, and is it safe to start. Version {version}.</p>
<ul>
<li><a href="metrics">/metrics</a> – for Prometheus</li>
<li><a href="healthz">/healthz</a> – 200 while the exporter serves</li>
</ul>
</body>
</html>
"""


def landing(version: str) -> str:
    return _PAGE.format(version=escape(version))
