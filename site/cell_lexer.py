"""Colours for specs: the words of editors/vim/syntax/cell.vim, as a lexer of Pygments."""

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace


class CellLexer(RegexLexer):
    name = "cell"
    aliases = ["cell"]
    filenames = ["*.cell"]
    tokens = {
        "root": [
            (r"//.*?$", Comment.Single),
            (r"/\*", Comment.Multiline, "comment"),
            (r'"[^"\n]*"', String),
            (
                words(
                    (
                        "import",
                        "cell",
                        "fn",
                        "adjoint",
                        "dim",
                        "const",
                        "option",
                        "input",
                        "param",
                        "state",
                        "output",
                        "reset",
                        "carry",
                        "when",
                        "else",
                        "repeat",
                    ),
                    prefix=r"(?<![\w.])",
                    suffix=r"\b(?!\s*[\[=:'])",
                ),
                Keyword,
            ),
            (words(("sum", "mean", "max", "min", "prod", "softmax"), suffix=r"(?=\s*\[)"), Name.Builtin),
            (r"[A-Za-z_]\w*(?=\s*\()", Name.Function),
            (r"[A-Za-z_]\w*'", Name.Variable),
            (r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", Number),
            (r"[A-Za-z_]\w*", Name),
            (r"[-+*/%^<>=!?:&|~]", Operator),
            (r"[\[\](){},;.]", Punctuation),
            (r"\s+", Whitespace),
        ],
        "comment": [
            (r"[^*]+", Comment.Multiline),
            (r"\*/", Comment.Multiline, "#pop"),
            (r"\*", Comment.Multiline),
        ],
    }
