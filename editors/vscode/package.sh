#!/bin/bash
# Packs the extension for VS Code as build/cell.vsix, or as the file that is named: a zip of its files with
# the two lists that VS Code reads. Needs python3, for the zip; no package of npm. The same files give the
# same bytes.
set -eu
cd "$(dirname "$0")/../.."
out=${1:-build/cell.vsix}
mkdir -p "$(dirname "$out")"
python3 - "$out" <<'P'
import json
import sys
import zipfile
from xml.sax.saxutils import escape, quoteattr

root = "editors/vscode/"
files = {"package.json": "", "extension.js": "", "language-configuration.json": "",
          "syntaxes/cell.tmLanguage.json": ""}
texts = {f"extension/{name}": open(root + name, encoding="utf-8").read() for name in files}
texts["extension/README.md"] = open("editors/README.md", encoding="utf-8").read()
texts["extension/LICENSE.txt"] = open("LICENSE", encoding="utf-8").read()
about = json.loads(texts["extension/package.json"])
texts["[Content_Types].xml"] = """<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension=".json" ContentType="application/json"/>
  <Default Extension=".js" ContentType="application/javascript"/>
  <Default Extension=".md" ContentType="text/markdown"/>
  <Default Extension=".txt" ContentType="text/plain"/>
  <Default Extension=".vsixmanifest" ContentType="text/xml"/>
</Types>
"""
texts["extension.vsixmanifest"] = f"""<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={quoteattr(about["name"])} Version={quoteattr(about["version"])} Publisher={quoteattr(about["publisher"])}/>
    <DisplayName>{escape(about["displayName"])}</DisplayName>
    <Description xml:space="preserve">{escape(about["description"])}</Description>
    <Categories>{escape(",".join(about["categories"]))}</Categories>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={quoteattr(about["engines"]["vscode"])}/>
    </Properties>
    <License>extension/LICENSE.txt</License>
  </Metadata>
  <Installation>
    <InstallationTarget Id="Microsoft.VisualStudio.Code"/>
  </Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.Details" Path="extension/README.md" Addressable="true"/>
    <Asset Type="Microsoft.VisualStudio.Services.Content.License" Path="extension/LICENSE.txt" Addressable="true"/>
  </Assets>
</PackageManifest>
"""
with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED) as z:
    for name in sorted(texts):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o644 << 16
        z.writestr(entry, texts[name])
P
echo "$out"
