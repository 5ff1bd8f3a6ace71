#!/usr/bin/env python3
"""Writes src/tokenizer/unicode_tables.inc: the Unicode data that Hugging Face `tokenizers` really uses.

  python make_unicode_tables.py --nfc unicode_tables.json --out unicode_tables.inc

The library mixes several Unicode versions (Oniguruma 16.0 for regexes, Unicode 9 for the normal forms, Rust's own for
Lowercase and Digits), so nothing here comes from one version of the standard: every set is measured by asking
`tokenizers` about every code point. Only the canonical data (combining classes, decompositions, compositions) is read
from unicode_tables.json, which tools/golden/tokenizers/make_tables.py measured and checked in the same way.
"""
import argparse
import json
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CHUNK = 0x4000
CHUNKS = [ALL[b:b + CHUNK] for b in range(0, len(ALL), CHUNK)]
TEXTS = ["".join(map(chr, c)) for c in CHUNKS]

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
POSIX = "alnum alpha blank cntrl digit graph lower print punct space upper word xdigit".split()
BINARY = ["Emoji", "Ideographic", "Extended_Pictographic", "Dash", "Diacritic", "Hex_Digit"]
SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki
Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian
Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan
Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi
Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited
Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian
Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui
Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari
New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian
Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene
Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting
Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet
Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi
Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()


def ranges(codes):
    out = []
    for c in codes:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def join(runs):
    out = []
    for lo, hi in runs:
        if out and out[-1][1] == lo - 1:
            out[-1][1] = hi
        else:
            out.append([lo, hi])
    return out


def regex_class(pattern):
    """All code points that match `pattern`, one character."""
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    out = []
    for codes, text in zip(CHUNKS, TEXTS):
        for _, (s, e) in split.pre_tokenize_str(text):
            for lo, hi in ranges(codes[s:e]):
                out.append([lo, hi])
    return join(out)


def where(test):
    return ranges([c for c in ALL if test(chr(c))])


def between(pre, left, right):
    """Code points c for which `pre` leaves left+c+right in one piece."""
    out = []
    for c in ALL:
        if len(pre.pre_tokenize_str(left + chr(c) + right)) == 1:
            out.append(c)
    return ranges(out)


def removed(norm, left="a", right="b"):
    return where(lambda ch: norm.normalize_str(left + ch + right) == left + right)


def scripts_of_pre_tokenizer():
    """(first, last, script number) as pre_tokenizers.UnicodeScripts sees it; 0 = Any (joins everything)."""
    pre = pre_tokenizers.UnicodeScripts()
    joins = lambda a, b: len(pre.pre_tokenize_str(a + b)) == 1
    latin, greek = "a", "\u03b1"
    number, last = {}, None
    out = []
    for c in ALL:
        ch = chr(c)
        if joins(latin, ch) and joins(greek, ch):
            n = 0
        elif last is not None and joins(chr(last[1]), ch) and last[0] != 0:
            n = last[0]
        else:
            n = next((k for k, rep in number.items() if joins(rep, ch)), None)
            if n is None:
                n = len(number) + 1
                number[n] = ch
        last = (n, c)
        if n == 0:
            continue
        if out and out[-1][2] == n and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c, n])
    return out


def case_orbits():
    """Sets of code points that (?i) treats as equal, as pairs (code point, smallest member)."""
    cased = [c for c in ALL if any(f(chr(c)) != chr(c) for f in (str.lower, str.upper, str.casefold, str.title))]
    text = " ".join(map(chr, cased))  # apart, so that a multi-character folding ("ss") cannot match
    seen, out = set(), []
    for c in cased:
        if c in seen:
            continue
        split = pre_tokenizers.Split(Regex("(?i:\\x{%x})" % c), "removed", invert=True)
        members = sorted({ord(m) for m, _ in split.pre_tokenize_str(text) if len(m) == 1})
        if len(members) > 1:
            seen.update(members)
            out.append(members)
    return out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--nfc", required=True)
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    stored = json.load(open(a.nfc))
    nfc = stored["nfc"]
    lines = ["// Generated by tools/tokenizer/make_unicode_tables.py from what `tokenizers` answers; do not edit.", "// clang-format off"]
    sets = []

    def emit(kind, name, runs):
        ident = f"k{kind}{name.replace('_', '')}"
        body = ",".join(f"{lo},{hi}" for lo, hi in runs)
        lines.append(f"constexpr uint32_t {ident}[] = {{{body}}};")
        sets.append((name, ident))
        return runs

    cats = {}
    for c in CATEGORIES:
        try:
            runs = regex_class(r"\p{%s}" % c)
        except Exception as e:  # noqa: BLE001
            print("no category", c, e)
            runs = []
        if runs:
            cats[c] = emit("Category", c, runs)
    for p in POSIX:
        emit("Posix", p, regex_class("[[:%s:]]" % p))
    for b in BINARY + SCRIPTS:
        try:
            emit("Property", b, regex_class(r"\p{%s}" % b))
        except Exception as e:  # noqa: BLE001
            print("not known to the regex engine:", b, str(e)[:60])
    rust = normalizers
    emit("Rust", "rust_word", between(pre_tokenizers.Whitespace(), "a", "a"))
    ws = pre_tokenizers.WhitespaceSplit()
    emit("Rust", "rust_whitespace", where(lambda ch: len(ws.pre_tokenize_str("a" + ch + "a")) == 2))
    punct = pre_tokenizers.Punctuation("removed")
    emit("Rust", "rust_punctuation", where(lambda ch: len(punct.pre_tokenize_str("a" + ch + "a")) == 2))
    bert = pre_tokenizers.BertPreTokenizer()
    emit("Rust", "bert_punctuation", where(lambda ch: len(bert.pre_tokenize_str("a" + ch + "a")) == 3))
    digits = pre_tokenizers.Digits(individual_digits=True)
    emit("Rust", "rust_numeric", where(lambda ch: len(digits.pre_tokenize_str("a" + ch + "a")) == 3))
    clean = rust.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    emit("Rust", "bert_removed", removed(clean))
    emit("Rust", "bert_space", where(lambda ch: clean.normalize_str("a" + ch + "b") == "a b"))
    accents = rust.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    emit("Rust", "bert_accent", removed(accents))
    emit("Rust", "rust_combining_mark", removed(rust.StripAccents()))
    chinese = rust.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    emit("Rust", "bert_chinese", where(lambda ch: chinese.normalize_str("a" + ch + "b") == "a " + ch + " b"))

    form_c, form_kd, form_d = rust.NFC(), rust.NFKD(), rust.NFD()
    ccc = {c: k for lo, hi, k in nfc["ccc"] for c in range(lo, hi + 1)}
    second = {y for _, y, _ in nfc["compose"]} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    emit("Nfc", "nfc_inert", where(lambda ch: ord(ch) not in ccc and ord(ch) not in second and form_c.normalize_str(ch) == ch))

    lines.append("constexpr NamedSet kNamedSets[] = {" + ",".join(f'{{"{n}",{i}}}' for n, i in sorted(sets)) + "};")
    lines.append("constexpr CodePointRun kCombiningClass[] = {" + ",".join(f"{{{lo},{hi},{k}}}" for lo, hi, k in nfc["ccc"]) + "};")
    lines.append("constexpr Composition kCompositions[] = {" + ",".join(f"{{{x},{y},{z}}}" for x, y, z in nfc["compose"]) + "};")

    pool, where_in_pool = [], {}

    def expansion(name, table):
        rows = []
        for c, seq in sorted(table.items()):
            if seq not in where_in_pool:
                where_in_pool[seq] = len(pool)
                pool.extend(seq)
            rows.append(f"{{{c},{where_in_pool[seq]},{len(seq)}}}")
        lines.append(f"constexpr Expansion {name}[] = {{" + ",".join(rows) + "};")

    hangul = lambda c: 0xAC00 <= c <= 0xD7A3
    d = {c: tuple(map(ord, form_d.normalize_str(chr(c)))) for c in ALL if not hangul(c)}
    kd = {c: tuple(map(ord, form_kd.normalize_str(chr(c)))) for c in ALL if not hangul(c)}
    low = rust.Lowercase()
    expansion("kCanonical", {c: s for c, s in d.items() if s != (c,)})
    expansion("kCompatibility", {c: s for c, s in kd.items() if s != d[c]})
    expansion("kLowercase", {c: s for c in ALL if (s := tuple(map(ord, low.normalize_str(chr(c))))) != (c,)})
    lines.append("constexpr uint32_t kExpansionPool[] = {" + ",".join(map(str, pool)) + "};")
    lines.append("constexpr CodePointRun kPreTokenizerScripts[] = {" + ",".join(f"{{{lo},{hi},{n}}}" for lo, hi, n in scripts_of_pre_tokenizer()) + "};")
    orbits = case_orbits()
    lines.append("constexpr CaseOrbit kCaseOrbits[] = {" + ",".join("{" + ",".join(map(str, (o + [0] * 4)[:4])) + "}" for o in orbits) + "};")
    assert all(len(o) <= 4 for o in orbits)
    with open(a.out, "w") as f:
        for line in lines:  # wrapped: a table of one line per set, at most ~4000 characters a line
            while len(line) > 4000 and "," in line[3900:]:
                cut = line.index(",", 3900) + 1
                f.write(line[:cut] + "\n")
                line = line[cut:]
            f.write(line + "\n")


if __name__ == "__main__":
    main()
