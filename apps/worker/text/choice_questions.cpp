#include "worker/text/choice_questions.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "decoder/decode/batch.h"

namespace dslaunch::worker {

namespace {

// Moves the common beginning of the choices into the prompt. Before this call, each choice is a
// whole text, which includes the prompt. After it, the prompt is the tokens with which all choices
// begin, so that all compared likelihoods follow the same prompt.
void split_off_prompt(ChoiceQuestion& question) {
    std::vector<int32_t>& prompt = question.prompt;
    for (const std::vector<int32_t>& whole : question.choices)
        prompt.erase(std::ranges::mismatch(prompt, whole).in1, prompt.end());
    for (std::vector<int32_t>& choice : question.choices)
        choice.erase(choice.begin(), choice.begin() + std::ssize(prompt));
}

// Returns true for a question whose answer is a text, such as "B".
bool has_letter(const nlohmann::json& json) {
    return json.is_object() && json.contains("prompt") && json.contains("choices") &&
           json.contains("answer") && json["answer"].is_string();
}

// Returns what is wrong with JSON, which is not a question.
const char* fault_of(const nlohmann::json& json) {
    if (has_letter(json))
        return "the answer is a text: write the index of the right choice, counted from 0 (A is 0)";
    if (!json.is_object()) return "this is not a question";
    if (!json.contains("prompt") || !json["prompt"].is_string())
        return "this is not a question: `prompt` is missing or not a text";
    if (!json.contains("choices") || !json["choices"].is_array())
        return "this is not a question: `choices` is missing or not a list";
    if (json["choices"].size() < 2)
        return "this is not a question: `choices` needs two texts or more";
    return json.contains("answer") ? "this is not a question: `answer` is not an index from 0 up"
                                   : "this is not a question: `answer` is missing";
}

// Converts a question in the form of ARC to the form that read_choice_questions() explains. ARC's
// form is {"question": text, "choices": {"text": [texts], "label": [texts]}, "answerKey": label}.
// Returns JSON itself if it has another form. The prompt is the same as in lm-evaluation-harness.
nlohmann::json without_labels(const nlohmann::json& json) {
    using Json = nlohmann::json;
    const auto is_text = [](const Json& one) { return one.is_string(); };
    if (!json.is_object() || !json.contains("question") || !json["question"].is_string() ||
        !json.contains("answerKey") || !json["answerKey"].is_string() ||
        !json.contains("choices") || !json["choices"].is_object())
        return json;
    const Json texts = json["choices"].value("text", Json()),
               labels = json["choices"].value("label", Json());
    if (!texts.is_array() || !labels.is_array() || texts.size() != labels.size() ||
        !std::ranges::all_of(texts, is_text))
        return json;
    const auto answer = std::ranges::find(labels, json["answerKey"]);
    if (answer == labels.end()) return json;
    Json choices = Json::array();
    for (const Json& choice : texts) {
        const auto text = choice.get<std::string>();
        choices.push_back((text.starts_with(' ') ? "" : " ") + text);
    }
    return {{"prompt", fmt::format("Question: {}\nAnswer:", json["question"].get<std::string>())},
            {"choices", choices},
            {"answer", static_cast<uint64_t>(answer - labels.begin())}};
}

// One entry of the file of questions.
struct Entry {
    nlohmann::json json;
    int64_t number = 0;  // of its line, or of the element in a list, counted from 1
};

// Reads FILE, lines of JSON or one list of JSON. Throws Error{kInput}.
std::vector<Entry> read_entries(const std::string& file) {
    using Json = nlohmann::json;
    std::ifstream in(file);
    if (!in)
        fail(ExitCode::kInput, "--choices {}: cannot be read: {}", printable(file),
             errno_text(errno));
    std::vector<Entry> entries;
    int64_t number = 0;
    if ((in >> std::ws).peek() == '[') {
        Json list = Json::parse(in, nullptr, false);
        if (!list.is_array())
            fail(ExitCode::kInput, "--choices {}: begins with `[`, but is not a list of JSON",
                 printable(file));
        for (Json& json : list) entries.push_back({std::move(json), ++number});
        return entries;
    }
    in.clear();
    in.seekg(0);  // blank lines at the begin count too
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (!trim(line).empty()) entries.push_back({Json::parse(line, nullptr, false), number});
    }
    return entries;
}

// Returns the loss of CHOICE after PROMPT, in nats, summed over CHOICE's tokens.
double loss_of(const std::vector<int32_t>& prompt, const std::vector<int32_t>& choice,
               decoder::TextScorer& scorer) {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), choice.begin(), choice.end() - 1);
    std::vector<int32_t> targets(prompt.size() - 1, decoder::kNoTarget);
    targets.insert(targets.end(), choice.begin(), choice.end());
    return scorer.score(tokens, targets).loss;
}

}  // namespace

std::vector<ChoiceQuestion> read_choice_questions(const std::string& file, int64_t questions_max,
                                                  const TextFiles& files) {
    using Json = nlohmann::json;
    std::vector<ChoiceQuestion> questions;
    for (const Entry& entry : read_entries(file)) {
        const int64_t number = entry.number;
        const Json json = without_labels(entry.json);
        const auto refuse = [&](const char* why) {
            fail(
                ExitCode::kInput,
                "{}:{}: {}; expected {{\"prompt\": text, \"choices\": [texts], \"answer\": index}}",
                printable(file), number, why);
        };
        if (!json.is_object() || !json.contains("prompt") || !json["prompt"].is_string() ||
            !json.contains("choices") || !json["choices"].is_array() ||
            json["choices"].size() < 2 || !json.contains("answer") ||
            !json["answer"].is_number_unsigned())
            refuse(fault_of(json));
        ChoiceQuestion question;
        question.answer = json["answer"].get<size_t>();
        if (question.answer >= json["choices"].size())
            refuse("the answer is not the index of a choice; the first choice has the index 0");
        const auto prompt = json["prompt"].get<std::string>();
        const decoder::TextCodec& codec = files.require_codec(kTokenizerWanted);
        for (const Json& choice : json["choices"]) {
            if (!choice.is_string()) refuse("a choice is not a string");
            const auto text = choice.get<std::string>();
            question.choices.push_back(codec.encode(prompt + text, /*is_rendered=*/false));
            question.bytes.push_back(text.size());
        }
        question.prompt = codec.encode(prompt, /*is_rendered=*/false);
        if (question.prompt.empty()) refuse("the prompt has no tokens");
        split_off_prompt(question);
        if (question.prompt.empty())
            refuse(
                "a choice after the prompt changes the first token of the prompt: the tokenizer "
                "joins letters of both; use a longer prompt");
        for (const std::vector<int32_t>& choice : question.choices)
            if (choice.empty()) refuse("a choice has no tokens");
        questions.push_back(std::move(question));
        if (std::ssize(questions) == questions_max) break;
    }
    if (questions.empty()) fail(ExitCode::kInput, "{}: has no questions", printable(file));
    return questions;
}

ChoiceScore score_choices(const std::vector<ChoiceQuestion>& questions,
                          decoder::TextScorer& scorer) {
    Progress progress("eval", "answering", std::ssize(questions), "questions");
    int64_t answered = 0;
    ChoiceScore score;
    for (const ChoiceQuestion& question : questions) {
        size_t best = 0, best_by_byte = 0;
        std::vector<double> losses;
        for (const std::vector<int32_t>& choice : question.choices)
            losses.push_back(loss_of(question.prompt, choice, scorer));
        const auto by_byte = [&](size_t i) {
            return losses[i] / static_cast<double>(question.bytes[i]);
        };
        for (size_t i = 1; i < losses.size(); ++i) {
            if (losses[i] < losses[best]) best = i;
            if (by_byte(i) < by_byte(best_by_byte)) best_by_byte = i;
        }
        score.right += best == question.answer ? 1 : 0;
        score.right_by_byte += best_by_byte == question.answer ? 1 : 0;
        progress.done(++answered);
    }
    return score;
}

}  // namespace dslaunch::worker
