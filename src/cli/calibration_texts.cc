#include "cli/calibration_texts.h"

namespace lockstep {
namespace {

// Prose, code, questions and conversation in nine languages. Not what anything is measured on.
// NOLINTBEGIN(bugprone-suspicious-missing-comma): long texts go on in the next line
constexpr std::string_view kTexts[] = {
    "The committee met twice before the summer and agreed on almost nothing except the date of its "
    "next meeting. Minutes were kept by a retired teacher whose handwriting improved with his "
    "impatience.",
    "Water boils at a lower temperature on a mountain because the pressure of the air is lower "
    "there. A cook who follows a recipe from the coast will find the beans hard after an hour and "
    "may blame the beans.",
    "To install the package, run `pip install tinyplot`, then import it with `import tinyplot as "
    "tp`. A first figure takes two lines: tp.line([1, 4, 9]); tp.show(). Colours are chosen from a "
    "palette that stays readable in print.",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; if (sum > limit) return -1; } // the limit "
    "guards against overflow",
    "SELECT name, COUNT(*) FROM orders WHERE placed > '2020-01-01' GROUP BY name HAVING COUNT(*) > "
    "3 ORDER BY 2 DESC;",
    "Die Stadtwerke teilen mit, dass am Montag zwischen acht und zwölf Uhr das Wasser abgestellt "
    "wird. Bitte füllen Sie rechtzeitig einige Gefäße und lassen Sie danach die Hähne kurz laufen.",
    "Le train de nuit traverse la plaine sans s'arrêter. Dans le couloir, un enfant compte les "
    "lampadaires et se trompe exprès pour recommencer. Sa mère dort contre la vitre.",
    "El volcán lleva dos siglos dormido, pero los pastores todavía miran la cumbre antes de subir "
    "con las ovejas. Dicen que el humo avisa primero a los perros.",
    "La nonna teneva le ricette in una scatola di latta, scritte a matita su foglietti di ogni "
    "colore; nessuna indicava le quantità.",
    "Снег шёл всю ночь, и утром дорога к станции исчезла. Мы шли по телефонным столбам, считая их "
    "вслух.",
    "朝の市場では、魚屋の声がいちばん大きい。氷の上に並んだ魚を見ながら、人々は今日の天気の話をする"
    "。",
    "火车晚点了两个小时，车站里的人却不着急，有人下棋，有人分橘子。",
    "Question: What is the capital of Norway? Answer: Oslo. Question: Which planet is the largest? "
    "Answer: Jupiter. Question: Who wrote Hamlet? Answer: William Shakespeare.",
    "The heart has four chambers. Blood low in oxygen enters the right atrium, passes to the right "
    "ventricle and is pumped to the lungs; from there it returns to the left atrium and is sent "
    "out by the left ventricle, whose wall is the thickest.",
    "Hello! How can I help you today? I would like to change my flight from Tuesday to Friday. Of "
    "course; may I have your booking number? It is K7TQ2. Thank you. There is a seat on the 9:40 "
    "flight, and the difference is thirty euros.",
    "The theorem says that every bounded sequence of real numbers has a convergent subsequence. "
    "Proof: halve the interval again and again and keep a half that contains infinitely many "
    "terms.",
};

// What the effect of codes is measured on.
constexpr std::string_view kHeldOut[] = {
    "The lighthouse keeper's daughter learned to read from shipping notices. By the age of "
    "nine she could tell a barque from a brig at four miles, and could spell the name of "
    "every rock on which either had come to grief. When the lamp was made electric she wrote "
    "to the ministry, politely, to ask what the rocks would do for company.",
    "Photosynthesis takes place in two stages. In the first, light splits water inside the "
    "chloroplast and releases oxygen; in the second, carbon dioxide is fixed into sugar by "
    "an enzyme called RuBisCO, which is slow and easily distracted and therefore the most "
    "abundant protein on Earth.",
    "def merge(left, right):\n    \"\"\"Merge two sorted lists into one.\"\"\"\n    result, "
    "i, j = [], 0, 0\n    while i < len(left) and j < len(right):\n        if left[i] <= "
    "right[j]:\n            result.append(left[i]); i += 1\n        else:\n            "
    "result.append(right[j]); j += 1\n    return result + left[i:] + right[j:]",
    "#include <vector>\n\ntemplate <typename T>\nclass Stack {\n public:\n  void Push(const "
    "T& value) { items_.push_back(value); }\n  bool Empty() const { return items_.empty(); "
    "}\n private:\n  std::vector<T> items_;\n};",
    "{\"id\": 4711, \"name\": \"Grace\", \"tags\": [\"admin\", \"staff\"], \"address\": "
    "{\"street\": \"12 Mill Lane\", \"city\": \"Leeds\"}, \"active\": true, \"score\": 87.25}",
    "# Changelog\n\n## 2.4.0 (2023-05-17)\n\n- Added: `--dry-run` prints what would be "
    "deleted.\n- Fixed: a crash when the cache directory is missing (#318).\n- Removed: "
    "support for Python 3.7.",
    "User: Can you explain what a mortgage is, in simple words?\nAssistant: Of course. A "
    "mortgage is a loan that you take to buy a house. The house itself is the security: if "
    "you stop paying, the bank may sell it. You pay back a little every month, usually for "
    "twenty or thirty years, and the bank adds interest to what you still owe.",
    "In 1854 a doctor named John Snow marked the deaths of a cholera outbreak on a map of "
    "Soho. They crowded around one pump in Broad Street. He had its handle taken off, and "
    "the outbreak, which was already fading, ended. The map persuaded almost no one at the "
    "time; it has persuaded everyone since.",
    "To make six pancakes, whisk 125 g of flour with two eggs, a pinch of salt and 250 ml of "
    "milk until no lumps are left. Let the batter rest for half an hour. Melt a little "
    "butter in a pan, pour in one ladle, and turn the pancake when its edges are brown.",
    "The Supreme Court held on Thursday that the statute did not apply to contracts signed "
    "before its passage. Writing for the majority, the chief justice said that Congress "
    "\"knew how to reach backward and chose not to\". Two justices dissented, and shares of "
    "the insurer rose by 3.4 percent in afternoon trading.",
    "Let f be continuous on [a, b] and differentiable on (a, b). Then there is a point c in "
    "(a, b) with f'(c) = (f(b) - f(a)) / (b - a). If f(x) = x^2 on [0, 2], then f'(c) = 2, "
    "so c = 1.",
    "\"You said you had locked it,\" she whispered. He turned the key the other way, then "
    "back again, and the door swung open by itself. Inside, somebody had lit all the "
    "candles. On the table stood two cups of tea, still hot, and a note with her name on it, "
    "spelled wrong.",
    "Dear Ms. Alvarez, thank you for your application for the position of laboratory "
    "assistant. We were impressed by your experience and would like to invite you to an "
    "interview on 14 March at 10:30 a.m. Please bring a copy of your diploma. Kind regards, "
    "H. Okafor, Human Resources",
    "Der Wald beginnt gleich hinter dem letzten Haus. Im Herbst riecht er nach nassem Laub "
    "und Pilzen, und wer früh genug aufsteht, sieht die Rehe am Rand der Wiese stehen. Die "
    "Regierung hat am Mittwoch beschlossen, die Förderung für Wärmepumpen bis 2027 zu "
    "verlängern; die Opposition nannte den Entwurf unausgegoren.",
    "La révolution industrielle commença en Angleterre vers 1760, avec la machine à "
    "vapeur et les filatures de coton. Les villes grandirent plus vite que leurs égouts. "
    "Pour préparer la pâte, mélangez la farine, le sel et l'eau tiède, puis laissez "
    "reposer une heure sous un linge humide.",
    "La biblioteca cerraba a las ocho, pero don Ernesto apagaba las luces a las siete y "
    "media para que nadie empezara un libro nuevo. El Gobierno anunció ayer que los precios "
    "del transporte público bajarán un diez por ciento a partir de enero, según informó "
    "la ministra de Hacienda.",
    "O rio sobe todos os anos em fevereiro e ninguém se admira. As crianças atravessam a "
    "praça de canoa e os velhos discutem se a água chegou mais alto em 1974. A empresa "
    "informou que o prazo de entrega é de cinco dias úteis.",
    "Il museo apre alle dieci e la fila comincia alle nove. Un uomo vende ombrelli anche "
    "quando c'è il sole, perché, dice, il sole non dura. Secondo i dati dell'istituto di "
    "statistica, la disoccupazione è scesa al sette per cento.",
    "В 1869 году Дмитрий Менделеев расположил "
    "элементы по атомному весу и оставил пустые "
    "места для тех, которых ещё никто не видел. Врач "
    "посоветовал ей больше гулять и меньше читать по "
    "ночам, но она делала наоборот и выздоровела.",
    "電車が遅れているため、会議は三十分後に始まります。資料は"
    "机の上に置いてありますので、先にご覧ください。彼は窓を開"
    "けて、雨の匂いを深く吸い込んだ。「もう春だね」と祖母が言"
    "った。",
    "图书馆的门口有一棵老槐树，夏天的时候，学生们喜欢坐在树下"
    "看书。根据最新的统计数据，去年全国粮食产量比前年增长了百"
    "分之一点三。请把水烧开，放入面条，煮八分钟左右。",
    "오늘은 날씨가 맑아서 공원에 사람이 많았다. 할아버지는 벤치에 "
    "앉아 비둘기에게 빵을 주었고, 아이들은 연을 날렸다. 정부는 "
    "내년부터 새로운 교통 정책을 시행한다고 밝혔다.",
    "افتتح الوزير المعرض صباح اليوم بحضور عدد من "
    "الكتاب والناشرين. جلست الجدة قرب النافذة تروي "
    "لأحفادها حكاية الصياد والسمكة الذهبية.",
    "भारत एक विशाल देश है जहाँ अनेक "
    "भाषाएँ बोली जाती हैं। सुबह होते "
    "ही बाज़ार में सब्ज़ी वालों की "
    "आवाज़ें गूँजने लगती हैं।",
    "Tren saat dokuzda kalkacak, lütfen biletlerinizi hazırlayın. Köyün en yaşlı "
    "kadını, eskiden kışların daha uzun olduğunu anlatırdı. Przez całą noc padał "
    "deszcz, a rano ogród wyglądał jak umyty.",
    "- Name: Atlantic puffin (Fratercula arctica)\n- Range: North Atlantic, from Maine to "
    "Norway\n- Diet: sand eels, herring, capelin\n- Status: vulnerable since 2015\n\nPuffins "
    "carry ten or more fish crosswise in the bill, held by spines on the tongue.",
    "Abstract. We study the convergence of stochastic gradient descent with momentum on "
    "non-convex objectives. Under a bounded variance assumption we show that the expected "
    "squared norm of the gradient decreases at a rate of O(1/sqrt(T)), and that the constant "
    "does not depend on the dimension. Experiments on image classification agree with the "
    "theory.",
    "Once upon a time, a fox and a hedgehog shared a house at the edge of a wood. The fox "
    "knew many tricks and told them at supper. The hedgehog knew one, and kept it to itself. "
    "One night the dogs came.",
    "Step 1: Unplug the machine and let it cool for ten minutes. Step 2: Remove the two "
    "screws on the back panel. Step 3: Lift the panel, pull out the old filter and push in "
    "the new one until it clicks. Warning: never run the machine without a filter.",
    "What is the difference between weather and climate? Weather is what happens outside on "
    "a given day; climate is the average of weather over many years. Why do leaves change "
    "colour? Because the green chlorophyll breaks down first. How many legs has a spider? "
    "Eight.",
};
// NOLINTEND(bugprone-suspicious-missing-comma)

}  // namespace

std::span<const std::string_view> CalibrationTexts() { return kTexts; }
std::span<const std::string_view> HeldOutTexts() { return kHeldOut; }

}  // namespace lockstep
