"""Files of spreadsheets, written without a library."""

import io
import zipfile
from xml.sax.saxutils import escape


def spreadsheet(rows, column="A", first=1):
    """Return an .xlsx file with inline texts; its first cell is `column` `first`."""
    lines = []
    for number, row in enumerate(rows, start=first):
        lines.append(f'<row r="{number}">')
        for letter, cell in enumerate(row, start=ord(column)):
            text = f"<is><t>{escape(str(cell))}</t></is>"
            lines.append(f'<c r="{chr(letter)}{number}" t="inlineStr">{text}</c>')
        lines.append("</row>")
    cells = "".join(lines)
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006/relationships"
    sheet = '<sheet name="Sheet1" sheetId="1" r:id="rId1"/>'
    relation = f'<Relationship Id="rId1" Type="{office}/worksheet" Target="worksheets/sheet1.xml"/>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in {
            "_rels/.rels": f'<Relationships xmlns="{package}"><Relationship Id="rId1" '
            f'Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets>{sheet}'
            "</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{package}">{relation}'
            "</Relationships>",
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData>'
            "</worksheet>",
        }.items():
            archive.writestr(name, text)
    return file.getvalue()
