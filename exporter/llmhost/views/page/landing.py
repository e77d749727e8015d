"""The plain page at `/` for clients that may not see the status: links, and nothing about the host."""

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
<p>On the host itself this page shows its status: <code>llmhost status</code> there, or from elsewhere
<code>ssh -L {port}:localhost:{port} HOST</code>, and then <code>http://localhost:{port}/</code> here.</p>
</body>
</html>
"""


def landing(version: str, port: int) -> str:
    return _PAGE.format(version=escape(version), port=port)
