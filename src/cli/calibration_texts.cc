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
// NOLINTEND(bugprone-suspicious-missing-comma)

}  // namespace

std::span<const std::string_view> CalibrationTexts() { return kTexts; }

}  // namespace lockstep
