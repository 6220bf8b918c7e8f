"""What code written by models imports and draws, in the image `python`: each program checks what it has made."""
import pytest

import support

PROGRAMS = {
    "Word": """
import docx
document = docx.Document()
document.add_heading("Report", 1)
document.add_table(rows=1, cols=2).rows[0].cells[1].text = "cell"
document.save("a.docx")
read = docx.Document("a.docx")
assert (read.paragraphs[0].text, read.tables[0].cell(0, 1).text) == ("Report", "cell")
""",
    "PDF": """
import io
from pypdf import PdfReader, PdfWriter
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Paragraph, SimpleDocTemplate, Table
SimpleDocTemplate("a.pdf").build([Paragraph("Total: 42", getSampleStyleSheet()["Normal"]), Table([["a", "b"]])])
writer = PdfWriter()
for _ in range(2):
    writer.add_page(PdfReader("a.pdf").pages[0])
writer.write("two.pdf")
pages = PdfReader("two.pdf").pages
assert len(pages) == 2 and "Total: 42" in pages[1].extract_text()
""",
    "Excel": """
import pandas as pd
frame = pd.DataFrame({"city": ["Ulm", "Bonn"], "count": [1, 2]})
with pd.ExcelWriter("a.xlsx", engine="xlsxwriter") as writer:
    frame.to_excel(writer, sheet_name="data", index=False)
    chart = writer.book.add_chart({"type": "column"})
    chart.add_series({"values": "=data!$B$2:$B$3"})
    writer.sheets["data"].insert_chart("D2", chart)
assert pd.read_excel("a.xlsx").equals(frame)
""",
    "old Excel": "import xlrd\ntry: xlrd.open_workbook(file_contents=b'no workbook')\nexcept xlrd.XLRDError as error: assert 'Unsupported format' in str(error)\n",
    "Markdown": "import pandas as pd\nassert pd.DataFrame({'a': [1]}).to_markdown(index=False).splitlines()[0] == '|   a |'\n",
    "YAML": "import yaml\nassert yaml.safe_load(yaml.safe_dump({'a': [1, 'ü']}, allow_unicode=True)) == {'a': [1, 'ü']}\n",
    "graphs": "import networkx as nx\nassert nx.shortest_path(nx.karate_club_graph(), 16, 26)[1:-1] and nx.pagerank(nx.path_graph(3))\n",
    "progress": "import sys\nfrom tqdm import tqdm\nassert sum(tqdm(range(5), file=sys.stdout)) == 10\n",
    "characters of a chart": """
import io, warnings
warnings.simplefilter("error")  # a glyph that no font has
import matplotlib.pyplot as plt
for kind in ("png", "pdf", "svg"):
    plt.figure()
    plt.bar(["\\u9500\\u552e", "\\u30b0\\u30e9\\u30d5", "\\ub9e4\\ucd9c"], [1, 2, 3])
    plt.title("\\u9500\\u552e\\u989d \\U0001f600 \\u2713 plain \\u00e9", weight="bold")
    plt.savefig(io.BytesIO(), format=kind)
assert plt.rcParams["font.family"] == ["sans-serif"]
""",
    "characters in a theme": """
import io, warnings
import seaborn
import matplotlib.pyplot as plt
seaborn.set_theme()
warnings.simplefilter("error")
plt.title("\\u9500\\u552e\\u989d")
plt.savefig(io.BytesIO())
""",
    "fonts by name": """
from PIL import Image, ImageDraw, ImageFont
for name, family in (("wqy-zenhei.ttc", "WenQuanYi Zen Hei"), ("LiberationSans-Regular.ttf", "Liberation Sans"), ("DejaVuSans.ttf", "DejaVu Sans")):
    font = ImageFont.truetype(name, 20)
    assert font.getname()[0] == family and font.getlength("abc") > 10
image = Image.new("L", (60, 30))
ImageDraw.Draw(image).text((0, 0), "\\u9500\\u552e", font=ImageFont.truetype("wqy-zenhei.ttc", 20), fill=255)
assert image.getbbox()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    support.need("userns")
    result = support.run_json("--image", "python", "-c", PROGRAMS[name])
    assert result["verdict"] == "ok", (result["stderr"], result["message"])


def test_characters_in_a_warm_sandbox():
    """The zygote has drawn before, and holds none of these fonts open."""
    support.need("userns")
    result = support.run_json("--image", "python", "--warm", "-c", PROGRAMS["characters of a chart"])
    assert result["verdict"] == "ok", (result["stderr"], result["message"])
