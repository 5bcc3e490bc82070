"""The parts of the shop that `./dev run` opens; `examples/shop.py` puts them together.

| | |
|---|---|
| `servers` | a name server and two brokers, and what they say of lags and of what is stored |
| `trade` | customers, and those who work on their orders |
| `books` | what was sent and what became of it, and whether the two agree |
| `queries` | the Spark side, a process of its own: archive, revenue, latency and skew |
| `pipelines` | starts that process and hears from it |
| `samples` | how things stood, second by second |
| `page`, `report` | shows them on a terminal, and as HTML at the end |
"""
