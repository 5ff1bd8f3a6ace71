#!/usr/bin/env python3
"""Many small templates and what Jinja2 (as transformers configures it) answers: tests/golden/chat/features.jsonl.

  python features.py --meta tests/golden/chat/meta.json --out tests/golden/chat/features.jsonl

Rows are like those of units.jsonl. Written for this project; run it again after adding a line.
"""
import argparse, datetime, json, os, warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")
import jinja2
from transformers.utils import chat_template_utils as ctu

CLOCK = datetime.datetime(2031, 4, 5, 6, 7, 8)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return CLOCK


ctu.datetime = FixedClock

FEATURES = r"""
{{ 1.0e0 }} {{ 1E5 }} {{ 1_0.5_0 }} {{ 123456789.123456789 }} {{ 1e100 }} {{ 5e-324 }} {{ 1.7976931348623157e308 }}
{{ 1e400 }} {{ -1e400 }} {{ 1e400 - 1e400 }}
{{ 0xff }} {{ 0XFF }} {{ 0b_1 }} {{ 0o1_7 }} {{ 00 }}
{{ 007 }}
{{ 1.x }}
{{ 1..real }}
{{ l.0 }} {{ l.1 }} {{ nested.0.1.0 }}
{{ d.a.x.0 }} {{ msgs.0.role }} {{ msgs[0]['role'] }} {{ msgs.0['role'].upper() }}
{{ -n }} {{ - 3 }} {{ --3 }} {{ +-3 }} {{ not not t }} {{ -n | abs }} {{ (-n) | abs }} {{ -f }} {{ +t }} {{ -t }}
{{ 2 ** 3 }} {{ 2.0 ** 3 }} {{ 2 ** 0.5 }} {{ (-8) ** 3 }} {{ 0 ** 0 }} {{ 2 ** -2 }}
{{ 0 ** -1 }}
{{ 10 // 3 }} {{ -10 // 3 }} {{ 10 // -3 }} {{ 10.5 // 3 }} {{ -10.5 // 3 }} {{ 10 % -3 }} {{ -10.5 % 3 }} {{ 10.5 % -3 }} {{ 3 % 1.5 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 // 0 }}
{{ 7 // 2.0 }} {{ 1e16 + 1 }} {{ 0.1 + 0.7 }} {{ 1/3 }} {{ 100 * 1.1 }} {{ 3.0 * 2 }} {{ 1e3 }} {{ 12345678.9 }} {{ 1e-7 * 3 }}
{{ true + true }} {{ true * 5 }} {{ 'a' * true }} {{ 'ab' * 0 }} {{ 'ab' * -1 }} {{ [1] * 0 }} {{ (1, 2) * 2 }} {{ (1,) + (2,) }}
{{ [1] + (2,) }}
{{ 'a' + none }}
{{ none + 1 }}
{{ d + d }}
{{ 'a' ~ 'b' ~ 1 + 2 }}
{{ 'a' ~ 1 * 2 ~ 'b' }} {{ 1 ~ -2 }} {{ none ~ true ~ [1] ~ {'a': 1} ~ (1,) }}
{{ 1 < 2 }} {{ 1 <= 1.0 }} {{ 'a' <= 'b' }} {{ [1, 2] < [1, 2, 3] }} {{ (1, 'a') < (1, 'b') }} {{ true > false }} {{ 1 < 2 > 0 }} {{ 1 < 3 > 2 < 9 }} {{ 3 == 3.0 == 3 }}
{{ [1] < ['a'] }}
{{ none < 1 }}
{{ d < d }}
{{ 'a' in 'abc' }} {{ '' in 'abc' }} {{ 'x' not in 'abc' }} {{ 2 in [1, 2] }} {{ [1] in [[1]] }} {{ 'a' in {'a': 1} }} {{ 1 in range(3) }} {{ 5 in range(3) }} {{ 1.0 in [1] }} {{ none in [none] }} {{ (1, 2) in [(1, 2)] }} {{ 'b' in d.keys() }} {{ 1 in d.values() }} {{ ('b', 1) in d.items() }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ 1 in none }}
{{ [1] in d }}
{{ zz in [1] }} {{ zz in d }}
{{ zz in 'abc' }}
{{ 1 == 1 and 2 == 2 or false }} {{ 1 and none or 'x' }} {{ not 1 in [1] }} {{ not zz }} {{ zz or 'd' }} {{ zz and 'd' }}|
{{ 'a' if true }}|{{ 'a' if false }}|{{ ('a' if false) is defined }}|{{ 'a' if false else 'b' if true else 'c' }}
{{ ('a' if false) + 'b' }}
{{ 1 if 2 if 3 else 4 else 5 }}
{{ [1, 2, 3][1] }} {{ [1, 2, 3][-1] }} {{ [1, 2, 3][true] }} {{ 'abc'[0] }} {{ 'abc'[-1] }} {{ u[0] }}{{ u[2] }} {{ (1, 2)[1] }} {{ range(5)[2] }} {{ range(5)[-1] }}
{{ [1, 2, 3]['a'] is defined }} {{ 'abc'[9] is defined }} {{ d[['a']] is defined }} {{ d[1] is defined }}
{{ l[1.0] }}|{{ l[none] }}|
{{ l[1:2] }} {{ l[:] }} {{ l[::] }} {{ l[-2:] }} {{ l[:-5] }} {{ l[5:] }} {{ l[::-1] }} {{ l[2:0:-1] }} {{ s[::3] }} {{ s[10:2:-2] }} {{ (1, 2, 3)[1:] }} {{ range(10)[2:8:2] }} {{ range(10)[::-1] | list }} {{ u[::-1] }} {{ u[:2] }} {{ 'abc'[none:2] }} {{ 'abc'[true:] }}
{{ l[::0] }}
{{ l['a':] }}
{{ d[1:2] }}
{{ no[1:] }}
{{ zz[1:] }}
{{ n[1:] }}
{{ l[1, 2] }}|{{ {(1, 2): 'x'}[1, 2] }}
{{ {'a': 1, 'a': 2} }} {{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {none: 1} }} {{ {(1, 2): 3} }} {{ {'a': {}} }}
{{ {[1]: 2} }}
{{ {'a': 1,} }} {{ [1, 2,] }} {{ (1, 2,) }} {{ (1) }} {{ () }} {{ [(), [], {}] }}
{{ 1, 2 }} {{ 1, }}
{{ 'a' 'b' "c" }} {{ "it's" }} {{ 'say "x"' }} {{ ['it\'s "x"'] }} {{ ["\t\r\n\\"] }} {{ ['\x7f\x80\xa0\xad'] }} {{ ['\u2028\ufeff\ue000'] }} {{ ['\U0001f600'] }}
{{ '\q\d\.' }} {{ '\101\60' }} {{ 'a\
b' }} {{ '\a\b\f\v' | length }} {{ '\é' }}
{{ '\x4' }}
{{ '\N{DASH}' }}
{{ 'unterminated }}
{{ "a\"b" }} {{ 'a\\' }} {{ '{{ }}' }} {{ '%}' }} {{ "#}" }}
{{ {'a': {'b': {'c': 1}}}.a.b.c }} {{ {'items': 1}.items is callable }} {{ {'items': 1}['items'] }} {{ {'get': 5}.get('get') }} {{ {'keys': [1]}['keys'] }}
{{ d.items }}|
{{ s.upper() }} {{ s['upper']() }} {{ 'x'.join(['a', 'b']) }} {{ ', '.join(d) }}
{{ 'x'.join([1]) }}
{{ 'x'.join(5) }}
{{ ' a b '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ 'abcba'.strip('ab') }} {{ 'abc'.lstrip('ab') }} {{ 'abc'.rstrip('bc') }} {{ '\u3000a\u00a0'.strip() }} {{ 'é中é'.strip('é') }}
{{ 'a'.strip(1) }}
{{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b  c '.split() }} {{ '  a b  c '.split(none, 1) }} {{ '  a b  c '.rsplit(none, 1) }} {{ 'a,b'.split(sep=',') }} {{ 'abc'.split('') is defined }}
{{ ''.split() }} {{ ''.split(',') }} {{ 'aXXbXXc'.split('XX') }} {{ 'abc'.split('abc') }} {{ 'a b c d'.split(' ', 2) }} {{ 'a b c d'.rsplit(' ', 2) }} {{ 'a b c'.split(maxsplit=1) }} {{ 'x'.split('x', 0) }}
{{ 'abc'.find('c') }} {{ 'abc'.find('') }} {{ 'abcabc'.find('c', 3) }} {{ 'abcabc'.find('a', 1, 3) }} {{ 'abcabc'.rfind('a') }} {{ 'é中a'.find('a') }} {{ 'abc'.index('b') }} {{ 'abc'.find('b', -1) }} {{ 'abc'.find('', 5) }} {{ 'abc'.count('') }} {{ 'aaa'.count('aa') }} {{ 'abab'.count('a', 1) }}
{{ 'abc'.index('z') }}
{{ 'abc'.find(1) }}
{{ 'abc'.startswith('b', 1) }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'abc'.startswith('') }} {{ 'abc'.endswith('b', 0, 2) }} {{ 'abc'.startswith(()) }}
{{ 'abc'.startswith(1) }}
{{ 'abc'.startswith(['a']) }}
{{ 'aaa'.replace('a', 'b') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }} {{ ''.replace('', 'x') }} {{ 'abc'.replace('z', 'y') }} {{ 'abc'.replace('b', '') }} {{ 'é'.replace('', '-') }} {{ 'aaa'.replace('a', 'b', 0) }} {{ 'aaa'.replace('a','b',-1) }}
{{ 'abc'.replace('b', 1) }}
{{ 'abc' | replace('b', 1) }} {{ 123 | replace(2, 'x') }} {{ none | replace('N', 'n') }}
{{ 'a\nb\r\nc\rd\u2028e\x0bf'.splitlines() }} {{ 'a\n\nb\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ ''.splitlines() }}
{{ 'a.b.c'.partition('.') }} {{ 'abc'.partition('.') }} {{ 'abc'.rpartition('.') }}
{{ 'abc'.center(10) }}|{{ 'abc'.center(8, '*') }}|{{ 'abcd'.center(7, '*') }}|{{ 'abcd'.center(9, '*') }}|{{ 'ab'.center(5,'*') }}|{{ 'abc'.ljust(6, '.') }}|{{ 'abc'.rjust(6) }}|{{ '-5'.zfill(5) }}|{{ '+5'.zfill(4) }}|{{ '5'.zfill(1) }}
{{ 'abc'.center(9, 'ab') }}
{{ 'ab cd'.title() }} {{ "they're bill's".title() }} {{ 'ab1cd'.title() }} {{ 'ǆa'.title() }} {{ 'ﬁx'.upper() }} {{ 'ŉ'.upper() }} {{ 'İ'.lower() | length }} {{ 'ΑΣ ΑΣΑ Σ'.lower() }} {{ 'ß'.title() }} {{ 'straße'.capitalize() }} {{ 'ᾳ'.upper() }} {{ 'ﬃ'.capitalize() }}
{{ "they're bill's" | title }} {{ 'foo-bar (baz) [qux] {zip} <zap>' | title }} {{ 'ab1cd e2f' | title }} {{ 'éa ça' | title }} {{ 'aB cD' | capitalize }}
{{ 'aBc'.swapcase() }} {{ 'ß'.casefold() }} {{ 'ÀÉ'.casefold() }} {{ 'aé'.isalpha() }} {{ '1²'.isdigit() }} {{ '1²'.isdecimal() }} {{ '½'.isnumeric() }} {{ '٣'.isdigit() }} {{ 'a_1'.isidentifier() }} {{ '1a'.isidentifier() }} {{ ''.isalpha() }} {{ 'ab'.isascii() }} {{ 'Ab Cd'.istitle() }} {{ 'AB'.istitle() }} {{ 'a1'.islower() }} {{ '1'.islower() }} {{ '\t '.isspace() }} {{ 'a\n'.isprintable() }} {{ ''.isprintable() }} {{ 'ª'.islower() }}
{{ 'a\tb\tc'.expandtabs() }}|{{ 'a\tb'.expandtabs(4) }}|{{ 'a\nb\tc'.expandtabs(4) }}|{{ 'a\tb'.expandtabs(0) }}
{{ 'abc'.removeprefix('ab') }} {{ 'abc'.removesuffix('bc') }} {{ 'abc'.removeprefix('x') }}
{{ 'abc'.encode() }} {{ 'é'.encode() }} {{ 'é'.encode('utf-8') | length }} {{ 'abc'.encode().decode() }}
{{ '{} {}'.format(1, 'a') }} {{ '{0} {1} {0}'.format(1, 2) }} {{ '{a} {b}'.format(a=1, b=2) }} {{ '{{}} {}'.format(1) }} {{ '{0[x]} {0[y][1]}'.format({'x': 1, 'y': [2, 3]}) }} {{ '{0.real}'.format(5) }} {{ '{!r}'.format('a') }} {{ '{!s:>4}'.format(1) }}
{{ '{:d} {:5d} {:05d} {:+d} {:,} {:_}'.format(1, 2, 3, 4, 1234567, 1234567) }} {{ '{:x} {:X} {:#x} {:o} {:b} {:#b}'.format(255, 255, 255, 8, 5, 5) }} {{ '{:c}'.format(65) }} {{ '{:%}'.format(0.25) }} {{ '{:.1%}'.format(0.256) }}
{{ '{:.2f} {:8.3f} {:e} {:g} {:G} {:.3g} {:,.2f}'.format(1.5, 2.25, 12345.678, 0.00001, 1e20, 1234.5, 1234567.891) }} {{ '{:f}'.format(3) }} {{ '{:.0f}'.format(2.5) }} {{ '{}'.format(1e16) }} {{ '{:.3}'.format(1234.5) }} {{ '{:.5}'.format(12.0) }} {{ '{:10}|'.format(1.5) }} {{ '{:<10}|'.format(1.5) }} {{ '{:^+10.1f}|'.format(1.55) }} {{ '{: }'.format(5) }} {{ '{:=+5}'.format(3) }}
{{ '{:>5} {:<5} {:^5} {:*^7} {:.2} {:5.1}|'.format('a', 'b', 'c', 'd', 'efg', 'hij') }} {{ '{:{}}|'.format('a', 4) }} {{ '{:{w}.{p}f}'.format(1.23456, w=8, p=2) }} {{ '{:s}'.format('x') }} {{ '{}'.format(none) }} {{ '{}'.format([1]) }} {{ '{:>5}'.format(true) }} {{ '{!r:>5}'.format('é') }} {{ '{:é>4}'.format('x') }}
{{ '{:d}'.format('a') }}
{{ '{:d}'.format(1.5) }}
{{ '{:s}'.format(1) }}
{{ '{}'.format() }}
{{ '{a}'.format() }}
{{ '{'.format() }}
{{ '}'.format() }}
{{ '{:>5}'.format(none) }}
{{ '{0} {}'.format(1, 2) }}
{{ '{a.b}'.format(a=1) }}|{{ '{a.__class__}'.format(a=1) }}|
{{ '{x}'.format_map({'x': 1}) }}
{{ '%s %d %i %f %.2f %e %g %x %X %o %c %r %%' % ('a', 1, 2, 1.5, 2.345, 1234.5, 0.0001, 255, 255, 8, 'z', 'q') }}
{{ '%5d|%-5d|%05d|%+d|% d|%5s|%-5s|%.2s|%5.1f|%-8.2e|' % (1, 2, 3, 4, 5, 'a', 'b', 'cde', 2.25, 1234.5) }} {{ '%*d' % (5, 1) }} {{ '%.*f' % (2, 1.234) }} {{ '%(a)s %(b)d' % {'a': 1, 'b': 2} }} {{ '%s' % [1, 2] }} {{ '%s' % {'a': 1} }} {{ '%s' % none }} {{ '%d' % 3.9 }} {{ '%#x %#o' % (255, 8) }} {{ '%c' % 65 }} {{ '%s' % zz }}| {{ '%5%' % () }} {{ '%d' % true }} {{ '%x' % 255 }} {{ '%s %s' % (1, (2, 3)) }} {{ '%r' % u }} {{ '%a' % 'x' }} {{ '%.3d' % 5 }}
{{ '%s %s' % 1 }}
{{ '%s' % (1, 2) }}
{{ '%d' % 'a' }}
{{ 'abc' % 1 }}
{{ '%(a)s' % 1 }}
{{ '%(a)s' % {'b': 1} }}
{{ '%q' % 1 }}
{{ '%' % 1 }}
{{ 'abc' % {} }} {{ 'abc' % [] }} {{ 'abc' % () }}
{{ '%s-%s' | format(1, 2) }} {{ '%(x)s' | format(x=5) }}
{{ '%s' | format(1, x=2) }}
{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'a', 'B'] | sort }} {{ ['b', 'A', 'a', 'B'] | sort(case_sensitive=true) }} {{ ['b', 'A', 'a', 'B'] | sort(reverse=true) }} {{ msgs | sort(attribute='role,n') | map(attribute='n') | list }} {{ msgs | sort(true, attribute='n') | map(attribute='n') | list }} {{ 'hello' | sort }} {{ d | sort }} {{ [true, 0, 2] | sort }} {{ [[2, 1], [1, 2]] | sort }}
{{ [1, 'a'] | sort }}
{{ [none, 1] | sort }}
{{ [d, d] | sort }}
{{ 5 | sort }}
{{ [1, 1.0, true, 2, 'a', 'A'] | unique | list }} {{ ['a', 'A'] | unique(case_sensitive=true) | list }} {{ msgs | unique(attribute='role') | map(attribute='n') | list }} {{ 'hello' | unique | join }} {{ [(1, 2), (1, 2)] | unique | list }}
{{ [[1], [1]] | unique | list }}
{{ [3, 1, 2] | min }} {{ ['b', 'A'] | min }} {{ ['b', 'A'] | max }} {{ msgs | max(attribute='n') }} {{ [] | min }}| {{ 'hello' | max }} {{ ['B', 'a'] | min(case_sensitive=true) }} {{ [1, 1.0] | max }}
{{ [1, 2.5] | sum }} {{ [] | sum }} {{ [[1], [2]] | sum(start=[]) }} {{ msgs | sum('n', 10) }}
{{ ['a'] | sum }}
{{ ['a'] | sum(start='') }}
{{ [1, 2, 3] | join(', ') }} {{ 'abc' | join('-') }} {{ d | join(',') }} {{ [1, [2], none] | join('|') }} {{ msgs | join(', ', attribute='role') }} {{ [] | join(',') }}| {{ [1, 2] | join(0) }} {{ msgs | map(attribute='content') | join('+') }} {{ range(3) | join }}
{{ 5 | join(',') }}
{{ none | join(',') }}
{{ l | first }} {{ d | first }} {{ 'abc' | first }} {{ range(3) | first }} {{ [] | first is defined }} {{ l | last }} {{ 'abc' | last }} {{ d | last }} {{ range(3) | last }} {{ [] | last is defined }} {{ zz | first is defined }}
{{ 5 | first }}
{{ l | map('abs') | last }}
{{ (l | map('abs') | first) }} {{ l | map('string') | join('.') }}
{{ l | length }} {{ d | length }} {{ 'é中' | length }} {{ (1, 2) | count }} {{ range(5) | length }} {{ d.items() | length }} {{ zz | length }}
{{ 5 | length }}
{{ l | map('abs') | length }}
{{ l | reverse | list }} {{ 'abc' | reverse }} {{ d | reverse | list }} {{ range(3) | reverse | list }} {{ (1, 2) | reverse | list }} {{ l | map('abs') | reverse }} {{ zz | reverse | list }} {{ d.items() | reverse | list }}
{{ 5 | reverse }}
{{ d | items | list }} {{ {} | items | list }} {{ d | dictsort }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(case_sensitive=true) }} {{ {'b': 1, 'A': 2} | dictsort(false, 'value') }} {{ {'b': 1, 'A': 2} | dictsort(reverse=true) }}
{{ d | dictsort(by='x') }}
{{ {1: 1, 'a': 2} | dictsort }}
{{ l | dictsort }}
{{ l | items | list }}
{{ msgs | groupby('role') | length }} {% for g in msgs | groupby('role') %}{{ g.grouper }}={{ g.list | length }};{{ g[0] }}{{ g | length }} {% endfor %}{% for k, v in msgs | groupby('n') %}{{ k }}{{ v[0].role }} {% endfor %}
{% for k, v in [{'a': 'B'}, {'a': 'b'}, {'a': 'A'}, {}] | groupby('a', default='z') %}{{ k }}:{{ v | length }} {% endfor %}
{% for k, v in [{'a': 'B'}, {'a': 'b'}] | groupby('a', case_sensitive=true) %}{{ k }}:{{ v | length }} {% endfor %}
{{ [{'a': 1}, {}] | groupby('a') }}
{{ msgs | groupby('role') }}
{{ l | map('string') | list }} {{ ls | map('lower') | list }} {{ ls | map('replace', 'b', 'c') | list }} {{ ls | map('default', 'x') | list }} {{ msgs | map(attribute='content') | list }} {{ msgs | map(attribute='x.y', default='-') | list }} {{ msgs | map('attr', 'role') | list }} {{ nested | map(attribute=0) | list }} {{ nested | map(attribute='0') | list }} {{ zz | map('upper') | list }} {{ [] | map('nosuch') | list }} {{ none | map('upper') | list }} {{ [['a', 1]] | map('first') | list }} {{ msgs | map(attribute='content') | map('length') | list }} {{ [[3, 1]] | map('sort', reverse=true) | list }} {{ ['a'] | map('indent', width=2, first=true) | list }}
{{ msgs | map(attribute='x.y') | list }}
{{ l | map | list }}
{{ l | map(attribute='a', foo=1) | list }}
{{ l | map('upper', 1, 2) | list }}
{{ 5 | map('upper') | list }}
{{ l | select | list }} {{ l | select('gt', 1) | list }} {{ l | select('even') | list }} {{ l | reject('odd') | list }} {{ [none, 1] | reject('none') | list }} {{ ['a', 1] | select('string') | list }} {{ l | select('in', [1, 2]) | list }} {{ l | select('==', 2) | list }} {{ l | select('divisibleby', 3) | list }} {{ l | reject | list }} {{ [1, 'a', none] | select('number') | list }} {{ l | select('sameas', 1) | list }}
{{ l | select('nosuch') | list }}
{{ l | select(1) | list }}
{{ msgs | selectattr('content') | list | length }} {{ msgs | selectattr('role', 'in', ['user']) | list | length }} {{ msgs | selectattr('n', 'gt', 1) | map(attribute='n') | list }} {{ msgs | rejectattr('zz') | list | length }} {{ msgs | selectattr('zz', 'defined') | list }} {{ msgs | selectattr('zz', 'undefined') | list | length }} {{ msgs | selectattr('role', 'ne', 'user') | map(attribute='role') | first }} {{ msgs | rejectattr('role', '==', 'user') | list | length }} {{ nested | selectattr(0) | list }} {{ nested | selectattr('0', 'defined') | list }}
{{ l | selectattr | list }}
{{ l | selectattr('a', 'gt', 1) | list }}
{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ [] | batch(2) | list }} {{ 'abcde' | batch(2) | map('join') | list }} {{ [1, 2] | batch(0) | list }} {{ [1,2,3,4,5,6,7] | slice(3) | list }} {{ [1,2,3,4,5,6,7] | slice(3, 'x') | list }} {{ [1] | slice(3) | list }} {{ [] | slice(2) | list }}
{{ [1] | slice(0) | list }}
{{ 'a\nb\nc' | indent }}|{{ 'a\n\nb' | indent(2) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\nb' | indent('> ') }}|{{ 'a\nb' | indent(width='--', first=true) }}|{{ '' | indent }}|{{ 'a\n' | indent }}|{{ 'a\r\nb' | indent(1) }}|{{ '\na' | indent(3, first=true) }}|
{{ 5 | indent }}
{{ 'hello world foo' | truncate(10) }} {{ 'hello world foo' | truncate(10, true) }} {{ 'hello world foo' | truncate(10, false, '…', 0) }} {{ 'hello' | truncate(3, true, '', 0) }} {{ 'abcdefghij' | truncate(5, leeway=0) }} {{ 'abc' | truncate }} {{ 'é中é中é中é中' | truncate(5, true, '.', 0) }}
{{ 'abc' | truncate(1) }}
{{ 'the quick brown fox' | wordwrap(10) }}|{{ 'the quick brown fox' | wordwrap(3) }}|{{ 'aaaaaaaaaa bb' | wordwrap(4) }}|{{ 'aaaaaaaaaa bb' | wordwrap(4, false) }}|{{ 'a\nb c' | wordwrap(3) }}|{{ 'well-known fact-like' | wordwrap(6) }}|{{ 'well-known' | wordwrap(6, break_on_hyphens=false) }}|{{ 'a  b   c' | wordwrap(4) }}|
{{ 'one two_three 4 é' | wordcount }} {{ '' | wordcount }} {{ "it's" | wordcount }}
{{ 'x' | center(5) }}| {{ 'xy' | center(5) }}| {{ 5 | center(3) }}|
{{ ' x ' | trim }}| {{ 'xxaxx' | trim('x') }} {{ 5 | trim }} {{ none | trim }} {{ zz | trim }}| {{ '\n a \n' | trim('\n') }}|
{{ 5 | upper }} {{ none | lower }} {{ [1, 'A'] | lower }} {{ zz | upper }}| {{ true | capitalize }} {{ 'é' | upper }}
{{ 3.7 | int }} {{ -3.7 | int }} {{ (-3.7) | int }} {{ '12' | int }} {{ ' 12 ' | int }} {{ '1_000' | int }} {{ '0x1f' | int }} {{ '0x1f' | int(base=16) }} {{ '0b11' | int(0, 2) }} {{ 'z' | int(-1) }} {{ '12.9' | int }} {{ none | int(5) }} {{ [] | int }} {{ true | int }} {{ '1e3' | int }} {{ 'ff' | int(base=16) }} {{ '' | int }} {{ '-5' | int }} {{ '٣' | int }} {{ 'inf' | int }} {{ 'nan' | int(2) }}
{{ zz | int }}
{{ 1e400 | int }}
{{ '3.5' | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ 5 | float }} {{ ' 1.5 ' | float }} {{ '1_0.5' | float }} {{ 'inf' | float }} {{ '-Infinity' | float }} {{ 'nan' | float }} {{ '.5' | float }} {{ '5.' | float }} {{ '1e5' | float }} {{ true | float }} {{ none | float }} {{ '0x10' | float }}
{{ zz | float }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ -2.5 | round }} {{ 2.675 | round(2) }} {{ 1.005 | round(2) }} {{ 1234.5678 | round(-2) }} {{ 1250 | round(-2) }} {{ 1350 | round(-2) }} {{ -1250 | round(-2) }} {{ 42 | round }} {{ 42 | round(1) }} {{ 2.1 | round(method='ceil') }} {{ 2.15 | round(1, 'floor') }} {{ 42 | round(0, 'ceil') }} {{ 1e20 | round }} {{ 0.5 | round }} {{ 1.5 | round | int }} {{ true | round }} {{ 2.55 | round(1, 'ceil') }} {{ 15 | round(-1) }} {{ 25 | round(-1) }}
{{ 2.5 | round(1, 'x') }}
{{ 'a' | round }}
{{ none | round }}
{{ -5 | abs }} {{ 5.5 | abs }} {{ true | abs }}
{{ 'a' | abs }}
{{ zz | abs }}
{{ 1 | filesizeformat }} {{ 0 | filesizeformat }} {{ 999 | filesizeformat }} {{ 1000 | filesizeformat }} {{ 1024 | filesizeformat(true) }} {{ 1500000000 | filesizeformat }} {{ '1234' | filesizeformat }} {{ 1e30 | filesizeformat }} {{ 2.5 | filesizeformat }}
{{ zz | default }}| {{ zz | default('x') }} {{ '' | default('x') }}| {{ '' | default('x', true) }} {{ none | default('x') }} {{ none | default('x', boolean=true) }} {{ false | d('x', true) }} {{ d.zz | default(n) }} {{ d.zz.yy | default('q') }}
{{ zz.yy | default('q') }}
{{ '<a>' | e }} {{ '<a>' | escape | e }} {{ '<a>' | safe | e }} {{ ('<a>' | safe) + '<b>' }} {{ '<a>' + ('<b>' | safe) }} {{ ('<a>' | e) ~ '<b>' }} {{ ('<a>' | e) | length }} {{ ('<' | e) | upper }} {{ 5 | e }} {{ '<a>' | safe is escaped }} {{ [('<' | e)] }} {{ ('%s' | e) % '<' }} {{ '<a>' | forceescape | forceescape }} {{ '\'"' | e }} {{ ('<' | e) | replace('&', 'x') }} {{ ('a' | safe) ~ 'b' is escaped }}
{{ 'a b&c/d?e=é~' | urlencode }} {{ {'a b': 'c&d', 'e': 1} | urlencode }} {{ [('a', 1), ('b', '/ ')] | urlencode }} {{ 5 | urlencode }}
{{ '<p>a &amp; <b>b</b>\n c</p><!-- x -->d' | striptags }}
{{ {'class': 'a', 'id': none, 'x': zz, 'q': '"<'} | xmlattr }}| {{ {'a': 1} | xmlattr(false) }}|
{{ {'b': 1, 'a': [1, 2]} | pprint }} {{ 'x' | pprint }} {{ none | pprint }} {{ (1, 'a') | pprint }}
{{ 'abc' | list }} {{ d | list }} {{ range(3) | list }} {{ (1, 2) | list }} {{ d.items() | list }}
{{ 5 | list }}
{{ none | list }}
{{ 5 | string }} {{ [1] | string }} {{ none | string | length }} {{ 1.50 | string }}
{{ 'a' | attr('zz') is defined }} {{ d | attr('b') is defined }} {{ d | attr('get') is callable }} {{ 5 | attr('real') }}
{{ zz | attr('x') }}
{{ d | tojson }} {{ d | tojson(indent=1) }} {{ [1, 'é', none, true, 1.5] | tojson }} {{ [1, 'é'] | tojson(ensure_ascii=true) }} {{ {'z': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [] | tojson(indent=2) }} {{ {1: 2, 1.5: 3, none: 4, true: 5} | tojson }} {{ 'a"\\/\b\f\n\r\t\x01\x7f' | tojson }} {{ (1, (2,)) | tojson }} {{ [[1], [2]] | tojson(indent='--') }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ 1e400 | tojson }} {{ '😀' | tojson(ensure_ascii=true) }} {{ [1] | tojson(indent=0) }} {{ {'a': []} | tojson(indent=2) }} {{ [1,2] | tojson(true) }} {{ msgs | tojson(indent=4) }}
{{ {(1, 2): 3} | tojson }}
{{ namespace(a=1) | tojson }}
{{ {1: 1, 'a': 2} | tojson(sort_keys=true) }}
{{ l | map('abs') | tojson }}
{{ d.items() | tojson }}
{{ n is divisibleby(7) }} {{ n is divisibleby 2 }} {{ n is not even }} {{ n is odd and t }} {{ not n is odd }} {{ n is lt 9 and n is gt 3 }} {{ 'a' is string and 1 is number }} {{ n is in [7] }} {{ 'a' is in 'abc' }} {{ n is sameas n }} {{ [] is sameas [] }} {{ 1 is sameas true }} {{ none is none }} {{ zz is undefined }} {{ n is ge 7 }} {{ n is le(7) }} {{ n is eq(7) }} {{ n is equalto 8 }} {{ n is greaterthan 6 }} {{ {} is mapping }} {{ [] is sequence }} {{ (1,) is sequence }} {{ range(3) is sequence }} {{ d.items() is sequence }} {{ d.items() is iterable }} {{ 'A' is upper }} {{ 'a1' is lower }} {{ 1.0 is integer }} {{ 1.0 is float }} {{ true is integer }} {{ true is number }} {{ none is boolean }} {{ d.get is callable }} {{ 'upper' is filter }} {{ 'even' is test }} {{ 5 is test }} {{ namespace() is mapping }} {{ dict is callable }} {{ zz is callable }} {{ zz is mapping }} {{ zz is sequence }} {{ zz is number }} {{ zz is boolean }} {{ zz is string }}
{{ 'a' is odd }}
{{ zz is odd }}
{{ n is divisibleby 0 }}
{{ n is divisibleby }}
{{ n is even(1) }}
{{ n is none is none }}
{{ n is defined or zz is defined }} {{ (n is defined) is true }} {{ n is defined and 'y' or 'n' }} {{ 'y' if n is defined else 'n' }} {{ n + 1 is odd }} {{ -1 is odd }} {{ n | string is string }} {{ n == 7 is true }}
{{ [] is filter }}
{{ n.foo is defined }} {{ n.real is defined }} {{ none.foo is defined }} {{ l.append is defined }} {{ d.zz is none }}
{% if n %}a{% elif t %}b{% else %}c{% endif %} {% if zz %}a{% elif e %}b{% else %}c{% endif %} {% if zz %}a{% endif %}|{% if n: %}x{% endif %}{% if n, t %}tuple{% endif %}
{% for x in l %}{{ loop.index }}/{{ loop.length }} {{ loop.revindex0 }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}
{% for x in l %}{{ loop.previtem }}|{{ loop.nextitem }}|{{ loop.previtem is defined }} {% endfor %}
{% for x in l | map('abs') %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ loop.nextitem }} {% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ loop.previtem }} {% endfor %}
{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %} {% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %} {% for m in msgs %}{{ loop.changed(m.role, 1) }}{% endfor %}
{% for x in l %}{{ loop.cycle() }}{% endfor %}
{% for x in l %}{{ loop }}{{ loop | length }} {% endfor %}
{% for x in l %}{{ loop.nope is defined }}{{ loop._x is defined }}{% endfor %}
{% for x in [] %}a{% else %}empty{% endfor %} {% for x in l if x > 9 %}a{% else %}none{% endfor %} {% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}else{% endfor %} {% for x in l %}{% continue %}{% else %}else{% endfor %} {% for x in l %}{% break %}{% else %}else{% endfor %}
{% for x in l %}{% for y in ls %}{{ loop.index }}{{ y }}{% endfor %}{{ loop.index }} {% endfor %}
{% for x in l %}{% set o = loop %}{% for y in ls if o.first %}{{ o.index }}{{ y }} {% endfor %}{% endfor %}
{% for x in l %}{% for y in ls if loop.first %}{{ x }}{{ y }} {% endfor %}{% endfor %}
{% for x in l %}{% if loop.first %}[{% endif %}{{ x }}{% if not loop.last %}, {% else %}]{% endif %}{% endfor %}
{% for k, v in d | items %}{{ k }}{{ v }} {% endfor %}{% for k, v in d.items() %}{{ loop.index }}{{ k }} {% endfor %}{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for a, b in ['xy', 'zw'] %}{{ b }}{{ a }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for a, b in [(1,)] %}{% endfor %}
{% for x in 1, 2, 3 %}{{ x }}{% endfor %} {% for x in (1, 2) %}{{ x }}{% endfor %} {% for x in 'é中' %}{{ x }}-{% endfor %} {% for x in range(0) %}{% endfor %}|
{% for x in l %}{{ x }}{% set x = 9 %}{{ x }} {% endfor %}{{ x is defined }}
{% for loop in l %}{{ loop }}{% endfor %}
{% for x in l %}{% set loop = 1 %}{% endfor %}
{% set loop = 5 %}{{ loop }}{% for x in l %}{{ x }}{% endfor %}{{ loop }}
{% for item in nested recursive %}{% if item is iterable %}[{{ loop(item) }}]{% else %}{{ item }}@{{ loop.depth }}{% endif %}{% else %}~{% endfor %}
{% for x in l recursive %}{{ x }}{% if loop.depth < 3 and x == 1 %}({{ loop([1, 2]) }}){% endif %}{% endfor %}
{% for x in l %}{{ loop(l) }}{% endfor %}
{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% continue %}{% endif %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}
{% break %}
{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for x in l %}{% set y %}a{% if x == 1 %}{% break %}{% endif %}b{% endset %}{{ y }}{% endfor %}
{% for x in l %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}b{% endfilter %}{% endfor %}
{% for x in range(100001) %}{% endfor %}
{% for x in range(3, 0, -1) %}{{ x }}{% endfor %} {{ range(1, 10, 3) | list }} {{ range(5, 1) | list }} {{ range(2, 3) }} {{ range(0, 10, 2) }} {{ range(3).stop }}
{{ range(1, 2, 0) }}
{{ range('a') }}
{{ range(1.5) }}
{{ range() }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }} {% for i in l %}{% set x = i %}{% endfor %}{{ x }} {% with %}{% set x = 5 %}{{ x }}{% endwith %}{{ x }} {% with x = 7 %}{{ x }}{% endwith %}{{ x }} {% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}
{% set a, b = [1, 2] %}{{ a }}{{ b }} {% set (a, b) = 'xy' %}{{ a }}{{ b }} {% set a = 1, 2 %}{{ a }} {% set a, (b, c) = 1, (2, 3) %}{{ a }}{{ b }}{{ c }} {% set a = b = 1 %}
{% set a, b = 1, 2 %}{% set a, b = b, a %}{{ a }}{{ b }}
{% set a, b = 1 %}
{% set a.b = 1 %}
{% set a['b'] = 1 %}
{% set 'a' = 1 %}
{% set a + b = 1 %}
{% set true = 1 %}
{% set ns = namespace(a=1) %}{% set ns.a = ns.a + 1 %}{% set ns.b = [ns.a] %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{{ ns['a'] }}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{% set ns.x, y = 3, 4 %}{{ ns.x }}{{ y }}
{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}{% set ns.y | upper %}abc{% endset %}{{ ns.y }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns.items is defined }}
{{ namespace(1) }}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set x %}  a  {% endset %}[{{ x }}] {% set x | trim %}  a  {% endset %}[{{ x }}] {% set x | replace('a', 'b') | upper %}aaa{% endset %}{{ x }} {% set x %}{% for i in l %}{{ i }},{% endfor %}{% endset %}{{ x }} {% set x %}{% set q = 1 %}{% endset %}{{ q is defined }}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter trim | replace('a', 'b') %} a a {% endfilter %} {% filter indent(2, true) %}a{{ '\n' }}b{% endfilter %} {% filter upper %}{% set q = 1 %}{% endfilter %}{{ q is defined }} {% filter length %}abc{% endfilter %}
{% filter nosuch %}x{% endfilter %}
{% macro m(a, b='B', *c) %}{% endmacro %}
{% macro m(a, b='B') %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }} {{ m(1, 2, 3) }} {{ m(1, x=2) }} {{ m(b=1, a=2) }} {{ m(*[1, 2, 3]) }} {{ m(**{'a': 1, 'q': 2}) }} {{ m(1, *[2], **{'z': 3}) }} {{ m() }}
{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}{{ m(none) }}{{ m(a=zz) }}
{% macro m(a) %}{{ a + 1 }}{% endmacro %}{{ m() }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=1) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(a, a) %}{% endmacro %}
{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('x') }} {% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }} {{ m.name }} {{ f.arguments }} {{ m.catch_kwargs }} {{ m.caller }} {{ m }}
{% macro outer() %}{% macro inner() %}in{% endmacro %}[{{ inner() }}]{% endmacro %}{{ outer() }}{{ inner is defined }}
{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body {{ n }}{% endcall %} {% macro w(x) %}<{{ x }}>{{ caller(x, 2) }}</{{ x }}>{% endmacro %}{% call(a, b=5) w('q') %}{{ a }}-{{ b }}{% endcall %} {% macro o() %}{{ caller is defined }}{% endmacro %}{{ o() }}{% call o() %}{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% call n %}x{% endcall %}
{% call n() %}x{% endcall %}
{% macro m(caller) %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m(caller=none) %}{{ caller() if caller else 'none' }}{% endmacro %}{{ m() }}{% call m() %}y{% endcall %}
{% macro m() %}{% for x in l %}{{ loop.index }}{% endfor %}{% endmacro %}{{ m() }} {% for q in l %}{% macro k() %}{{ q }}{{ loop.index }}{% endmacro %}{{ k() }} {% endfor %}
{% macro m() %}{{ v }}{% endmacro %}{% set v = 1 %}{{ m() }}{% set v = 2 %}{{ m() }}
{% for i in l %}{% set v = i %}{{ m2() if m2 is defined }}{% macro m2() %}{{ v }}{% endmacro %}{% endfor %}
{% if true %}{% macro c() %}C{% endmacro %}{% endif %}{{ c() }}
{% block a %}A{{ n }}{% endblock %} {% block b scoped %}B{% endblock b %} {% set bb = 3 %}{% block c %}{{ bb }}{% endblock %}
{% block a %}{% endblock %}{% block a %}{% endblock %}
{% block a-b %}{% endblock %}
{% raw %}{{ x }}{% endraw %} {% raw -%}  {{ y }}  {%- endraw %}| {%- raw %} z {% endraw -%} | {% raw %}{% raw %}{% endraw %}
{% raw %}unclosed
{# comment #}a{#- b -#} c {#+ d +#} e{# {{ n }} {% if %} #}f
{# unclosed
{#
a{#
{% if t -%}   x   {%- endif %}| {{- n -}} |{{ n -}}   | {%- set a = 1 -%} | {% set a = 1 %}
{% print 1, n %} {% print %}|
{% with %}{{ n }}{% endwith %} {% with a=1 %}{% with b=a %}{{ b }}{% endwith %}{% endwith %} {% with a=1, b=a %}{{ b }}{% endwith %}|
{% autoescape true %}{{ '<' }}{{ '<' | safe }}{{ '<' ~ '>' }}{{ ['<'] }}{{ (html | e) ~ '<' }}{{ '<' | upper }}{{ ['<', '>' | e] | join('&') }}{% set q %}<b>{{ '<' }}{% endset %}{{ q }}{% macro m() %}<i>{{ '<' }}{% endmacro %}{{ m() }}{{ '<' | replace('<', '>') }}{% endautoescape %}{{ '<' }}
{% autoescape false %}{{ '<' }}{% endautoescape %}
{{ cycler('a', 'b').next() }} {% set c = cycler(1, 2) %}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.next() }}{% set _ = c.reset() %}{{ c.current }} {% set j = joiner() %}{{ j() }}{{ j() }}{{ j() }}
{{ cycler() }}
{{ dict() }} {{ dict(a=1) }} {{ dict({'a': 1}, b=2) }} {{ dict([['a', 1]]) }} {{ dict(d) == d }} {{ dict.fromkeys(['a'], 1) }} {{ dict(a=1).a }} {{ dict(**{'x': 1}) }}
{{ dict(1) }}
{{ dict([1]) }}
{{ dict(['ab', 'cd']) }}
{{ d.get('b') }} {{ d.get('q', 'z') }} {{ d.get('q') }} {{ d.keys() }} {{ d.values() }} {{ d.items() }} {{ d.copy() }} {{ {}.keys() }}
{{ d.get() }}
{{ d.get([1]) }}
{{ d.setdefault('x', 1) }}
{{ d.clear() }}
{{ d.popitem() }}
{{ l.pop() }}
{{ l.extend([1]) }}
{{ l.insert(0, 1) }}
{{ l.remove(1) }}
{{ l.reverse() }}
{{ l.clear() }}
{{ l.append }}|{{ l.append is defined }}|{{ l['append'] }}|{{ l | attr('append') }}|
{{ l.index(9) }}
{{ l.count(1) }} {{ l.index(1) }} {{ l.copy() }} {{ (1, 2, 1).count(1) }} {{ (1, 2).index(2) }} {{ [1, 2, 1].index(1, 1) }}
{{ (5).bit_length() }} {{ 2.0.is_integer() }} {{ 2.5.is_integer() }} {{ n.numerator }} {{ f.imag }} {{ t.real }} {{ 255 .bit_length() }}
{{ ''.__class__ }}|{{ ''.__foo__ }}|{{ d.__len__ }}|{{ d['__len__'] }}|{{ n.__add__ }}|{{ s._x }}|
{{ ''.__class__.__base__ }}
{{ ''.__foo__.bar }}
{{ l.__len__() }}
{{ s.__len__ + 1 }}
{{ d.__class__() }}
{{ ''['__class__']['__base__'] }}
{{ zz.__class__ }}
{{ range.__class__ }}|
{{ raise_exception('a', 'b') }}
{{ raise_exception(message='kw') }}
{{ raise_exception(none) }}
{{ raise_exception(['x']) }}
{{ strftime_now('%d %B %Y, %H:%M') }} {{ strftime_now('%Y-%m-%dT%H:%M:%S') }} {{ strftime_now('%x %X %c') }} {{ strftime_now('%-m/%-d/%y %-I %l %k') }} {{ strftime_now('%G-W%V-%u %w %W %U %j %C %D %F %T %R %r %h %n%t%%') }} {{ strftime_now('%^a %^B %#p %_d %0e') }} {{ strftime_now('%f %z %Z|') }} {{ strftime_now('%P') }} {{ strftime_now('%g') }} {{ strftime_now('a%') }}
{{ strftime_now(5) }}
{{ strftime_now() }}
{{ s.zz.y }}
{{ none.x.y }}
{{ zz[0] }}
{{ zz.a }}
{{ zz(1) }}
{{ d.zz() }}
{{ l[9].x }}
{{ l.x.y }}
{{ n.x.y }}
{{ msgs[9]['role'] }}
{{ 'a'() }}
{{ none() }}
{{ n(1) }}
{{ [1, 2](0) }}
{{ zz + 1 }}
{{ 1 + zz }}
{{ 'a' + zz }}
{{ [1] + zz }}
{{ 'a' * zz }}
{{ -zz }}
{{ zz < 1 }}
{{ 1 > zz }}
{{ zz == zz }} {{ zz == none }} {{ zz != 1 }} {{ zz == '' }} {{ [zz, 1] }} {{ {'a': zz} }} {{ (zz,) }} {{ zz ~ zz }}| {{ zz | list }} {{ 'x' if zz else 'y' }} {{ zz | join }}|{{ zz | string }}|{{ zz | e }}|
{{ 1 + }}
{{ (1 }}
{{ [1, 2 }}
{{ {1: 2 }}
{{ 1 2 }}
{{ a b }}
{{ a. }}
{{ a.'b' }}
{{ a[ }}
{{ a[] }}
{{ }}
{{ a | }}
{{ a | b }}
{{ a | upper lower }}
{{ a is }}
{{ a is b }}
{{ a if }}
{{ if }}
{{ for }}
{{ not }}
{{ in }}
{{ * }}
{{ a = 1 }}
{{ a; b }}
{{ a ! b }}
{{ a ? b }}
{{ a & b }}
{{ f(a b) }}
{{ f(a=1, 2) }}
{{ f(**d, 1) }}
{{ f(*l, *l) }}
{{ f(,) }}
{{ dict(a=1, a=2) }}
{{ dict(a=1, **{'a': 2}) }}
{{ dict(a=1,) }} {{ range(*[1, 3]) | list }} {{ range(*(3,)) | list }}
{{ dict(*5) }}
{{ dict(**5) }}
{{ {'a' 1} }}
{{ {'a'} }}
{{ {**d} }}
{{ [*l] }}
{{ lambda x: x }}
{{ [x for x in l] }}
{{ a := 1 }}
{% %}
{% 1 %}
{% if %}x{% endif %}
{% if n %}x
{% if n %}x{% endfor %}
{% for %}{% endfor %}
{% for x %}{% endfor %}
{% for x in %}{% endfor %}
{% for x in l
{% for 1 in l %}{% endfor %}
{% for x.y in l %}{% endfor %}
{% else %}
{% endif %}
{% elif n %}
{% if n %}{% else %}{% else %}{% endif %}
{% if n %}{% else %}{% elif n %}{% endif %}
{% set %}
{% set x %}
{% set x = %}
{% set x = 1
{% macro %}{% endmacro %}
{% macro m %}{% endmacro %}
{% macro m( %}{% endmacro %}
{% endmacro %}
{% call %}{% endcall %}
{% filter %}{% endfilter %}
{% with x %}{% endwith %}
{% raw
{% include 'a' ignore missing %}
{% include 'a' %}
{% from 'a' import b as c with context %}
{% from 'a' import _b %}
{% import 'a' as b without context %}
{% import 'a' %}
{% extends 'a' %}
{% do 1 %}
{% trans %}{% endtrans %}
{% debug %}
{% continue %}
{% generation %}
{% endgeneration %}
{% generation %}a{% generation %}b{% endgeneration %}c{% endgeneration %}
x{% for m in msgs %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}y
{% macro m() %}ab{% generation %}é{% endgeneration %}{% endmacro %}12{{ m() }}
{% set x %}q{% generation %}ww{% endgeneration %}{% endset %}{{ x }}
{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% if n is nosuch %}{% endif %}
{% if false %}{{ n | nosuch }}{% endif %}ok
{% if true %}{{ n | nosuch }}{% endif %}
{% if false %}{% for x in l %}{{ n | nosuch }}{% endfor %}{% endif %}ok
{{ (n | nosuch) if false else 'ok' }}
{{ n | nosuch if true else 'ok' }}
{% if false %}{% if n is nosuch %}{% endif %}{% endif %}ok
{% if false %}{% set x | nosuch %}{% endset %}{% endif %}ok
{{ l|first|string~'x' }} {{ l|length>2 }} {{ l|length + 1 }} {{ 'a'|upper~'b'|upper }} {{ n|string + 'x' }} {{ not l|length }} {{ l|sum / l|length }} {{ -1|abs }} {{ 2**3|abs }} {{ 'x'.upper()|lower }}
{{ (l | sort)[0] }} {{ (1, 2)|join(',') }} {{ [1,2]|map('string')|join }} {{ {'a':1}|tojson }} {{ s|upper|lower|title }} {{ l|sort|reverse|first }} {{ ls|sort|join|upper }}
{{ s.split()[0].lower() }} {{ s.split(' ')|last }} {{ (s ~ '!').upper() }} {{ s[0:5]|upper }} {{ 'abc'[1:]|length }} {{ [[1,2],[3]][0][1] }} {{ {'a':[1,{'b':2}]}.a[1].b }} {{ d.a['x'][0] }} {{ s.replace('o','0').replace('l','1') }}
{{ true and 1 }} {{ 1 and 2 and 3 }} {{ 0 or none or 'z' }} {{ 1 if 0 or 1 else 2 }} {{ not (1 and 0) }} {{ 1 == 1 != 2 }} {{ 'a' < 'b' < 'c' }} {{ 1 in [1] == true }} {{ 2 not in [1] and true }}
{{ True }}{{ False }}{{ None }}{{ TRUE is defined }}{{ NONE is defined }}{{ nil is defined }}
{{ self is defined }} {{ caller is defined }} {{ varargs is defined }} {{ loop is defined }} {{ request is defined }} {{ range is defined }} {{ context is defined }} {{ environment is defined }}
{{ msgs[-1].role }} {{ msgs[-1:][0].n }} {{ msgs[1:] | length }} {{ msgs | length - 1 }} {{ msgs[0].content | trim | length }} {{ msgs[::-1] | map(attribute='n') | list }} {{ (msgs | last).role }} {{ msgs[0].role == 'user' and msgs[1]['role'] == 'assistant' }}
{{ 12345678901234567890123 }} {{ big + 1 }} {{ big // 7 }} {{ big % 1000 }} {{ -big }} {{ big * big }} {{ big / 2 }} {{ 2 ** 100 }} {{ big > 1.0 }} {{ big | string | length }} {{ '%d' % big }} {{ '{:,}'.format(big) }} {{ big | tojson }} {{ (2 ** 64) | int }}
{{ 1e15 }} {{ 123456789012345680.0 }} {{ 0.00001 }} {{ 1e-4 }} {{ 100000.0 }} {{ 1.10 }} {{ 3.14159265358979 }} {{ 2.0e-10 }} {{ 1e21 | int }} {{ 1e5 | int }} {{ -0.0 }} {{ 0.0 == -0.0 }} {{ 5 / 2.0 }} {{ 1e308 * 10 }}
a {{ n }} b{{ n }}
  {{ n }}
{%- if t %}   a{% endif %}   b
 {%- if t -%} a {%- endif -%} b
  {%+ if t +%}
  x
  {%+ endif +%}
  y
{% if t %}

a

{% endif %}

b
{% for x in l %}
  {% if x > 1 %}
    {{ x }}
  {% endif %}
{% endfor %}
end
  {% set a = 1 %}  {% set b = 2 %}
  {# c #}
	{# tab #}	{% if t %}	x	{% endif %}	
a	{% if t %}
b {# c #}
{{ n }} {# c #}
c {#- d -#}
 e
{{ n -}}

  f
{% raw %}
  {% if %}
{% endraw %}
  g
{%- raw -%}
  h
{%- endraw -%}
  i
{% set x -%}
   j
{%- endset %}
{{ x }}{% if t %}{% endif %}
{{ x }}{% if t %} {% endif %}
k
"""


def err(e):
    t = type(e)
    if t is jinja2.exceptions.TemplateError:
        kind = "raise_exception"
    elif t in (jinja2.exceptions.TemplateSyntaxError, jinja2.exceptions.TemplateAssertionError):
        kind = "syntax"
    elif t is jinja2.exceptions.UndefinedError:
        kind = "undefined"
    elif t is jinja2.exceptions.SecurityError:
        kind = "security"
    elif isinstance(e, jinja2.exceptions.TemplateError):
        kind = "template_runtime"
    else:
        kind = "python"
    return {"kind": kind, "type": t.__name__, "message": str(e)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--meta", required=True)
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    context = json.load(open(a.meta))["unit_context"]
    lines = FEATURES.strip("\n").split("\n")
    # Each line is a template; the last part (from "a {{ n }} b") is also taken as one text and in pieces.
    start = lines.index("a {{ n }} b{{ n }}")
    white = lines[start:]
    templates = list(lines)
    for width in (2, 3, 5, len(white)):
        templates += ["\n".join(white[i:i + width]) for i in range(0, len(white), 1 if width < 9 else len(white))]
    with open(a.out, "w", encoding="ascii") as f:
        for k, t in enumerate(dict.fromkeys(templates)):
            row = {"id": f"feature/{k:03d}", "template": t}
            try:
                c = ctu._compile_jinja_template(t)
                row["output"] = c.render(**json.loads(json.dumps(context)))
            except Exception as e:
                row["error"] = err(e)
            if "output" in row and "{% generation" in t:
                _, spans = ctu._render_with_assistant_indices(c, [], None, None, False, **json.loads(json.dumps(context)))
                row["generation_spans"] = [list(x) for x in spans]
            if " object at 0x" in row.get("output", "") or "<built-in" in row.get("output", ""):
                row.pop("output")  # prints a memory address: only that it renders
            f.write(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
