// dsworker eval: measures how well a language model predicts held-out text, and which of several
// answers it finds most likely.
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/json.h"
#include "decoder/decode/batch.h"
#include "decoder/score/text_scores.h"
#include "storage/huggingface/named_place.h"
#include "worker/data/token_rows.h"
#include "worker/roles.h"
#include "worker/text/decoder_session.h"
#include "worker/text/held_out.h"
#include "worker/text/text_files.h"

namespace dslaunch::worker {
namespace {

struct EvalArguments {
    DecoderArguments decoder;
    std::string data, choices;
    std::string dtype = "uint16";
    int64_t samples_max = 0;
    bool writes_reference = false;
    bool json = false;
};

void declare(CommandLine& app, EvalArguments& arguments) {
    app.add("MODEL", arguments.decoder.model, "a Hugging Face folder, or a GGUF file").required();
    app.add("--data FILE", arguments.data,
            "held-out text: rows (or pairs of answers) from `dslaunch data prepare`, or a file of "
            "tokens");
    app.add("--choices FILE", arguments.choices,
            "lines of JSON: {\"prompt\": text, \"choices\": [texts], \"answer\": index}, or "
            "questions in the form of ARC");
    app.add("--context N", arguments.decoder.context,
            "tokens per sample, if --data is a file of tokens; 0: the model's own limit")
        .show_default()
        .at_least(0);
    app.add("--dtype NAME", arguments.dtype, "number type, if --data is a file of tokens")
        .show_default()
        .one_of({"uint16", "uint32", "int32", "int64"});
    app.add("--samples N", arguments.samples_max,
            "use only the first N rows or lines; default: all")
        .at_least(1);
    app.add("--write-reference", arguments.writes_reference,
            "write this model's likelihood of each answer into --data, a file of pairs: training "
            "with --loss dpo or ipo needs it as the reference")
        .needs("--data");
    app.add("--json", arguments.json, "print the result as JSON");
    declare_decoder(app, arguments.decoder);
    declare_cpu(app, arguments.decoder);
}

struct Question {
    std::vector<int32_t> prompt;
    std::vector<std::vector<int32_t>> choices;
    std::vector<size_t> bytes;  // the lengths of the choices' texts
    size_t answer = 0;
};

// Moves the common beginning of the choices into the prompt. Before this call, each choice is a
// whole text, which includes the prompt. After it, the prompt is the tokens with which all choices
// begin, so that all compared likelihoods follow the same prompt.
void split_off_prompt(Question& question) {
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

// Converts a question in the form of ARC to the form that read_questions() explains. ARC's form is
// {"question": text, "choices": {"text": [texts], "label": [texts]}, "answerKey": label}. Returns
// JSON itself if it has another form. The prompt is the same as in lm-evaluation-harness.
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

std::vector<Question> read_questions(const EvalArguments& arguments, const TextFiles& files) {
    using Json = nlohmann::json;
    std::ifstream in(arguments.choices);
    if (!in)
        fail(ExitCode::kInput, "--choices {}: cannot be read: {}", printable(arguments.choices),
             errno_text(errno));
    std::vector<Question> questions;
    int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
        ++number;
        if (trim(line).empty()) continue;
        const Json json = without_labels(Json::parse(line, nullptr, false));
        const auto refuse = [&](const char* why) {
            fail(
                ExitCode::kInput,
                "{}:{}: {}; expected {{\"prompt\": text, \"choices\": [texts], \"answer\": index}}",
                printable(arguments.choices), number, why);
        };
        if (!json.is_object() || !json.contains("prompt") || !json["prompt"].is_string() ||
            !json.contains("choices") || !json["choices"].is_array() ||
            json["choices"].size() < 2 || !json.contains("answer") ||
            !json["answer"].is_number_unsigned())
            refuse(has_letter(json) ? "the answer is a text: write the index of the right choice, "
                                      "counted from 0 (A is 0)"
                                    : "the line is not a question");
        Question question;
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
                "the prompt's first token changes when a choice follows it; use a longer prompt");
        for (const std::vector<int32_t>& choice : question.choices)
            if (choice.empty()) refuse("a choice has no tokens");
        questions.push_back(std::move(question));
        if (std::ssize(questions) == arguments.samples_max) break;
    }
    if (questions.empty())
        fail(ExitCode::kInput, "{}: has no questions", printable(arguments.choices));
    return questions;
}

// A model's log-probabilities of both answers, for each pair in a file of rows.
struct PairScores {
    // The log-probability, in nats, of the answer in each row, and its number of tokens.
    std::vector<float> of_answer;
    std::vector<int64_t> tokens;
};

// Returns the text of ROW up to its last target; tokens after it have no influence.
HeldOutText answer_of(const TokenRows& rows, int64_t row) {
    HeldOutText answer{rows.tokens(row), rows.targets(row)};
    while (answer.tokens.size() > 1 && answer.targets.back() == decoder::kNoTarget) {
        answer.tokens.pop_back();
        answer.targets.pop_back();
    }
    return answer;
}

// Returns the number of tokens at the beginning that are the same in both texts and have no target
// in SECOND.
int64_t shared_prompt(const HeldOutText& first, const HeldOutText& second) {
    int64_t shared = 0;
    const int64_t most = std::min(std::ssize(first.tokens), std::ssize(second.tokens) - 1);
    while (shared < most && first.tokens[shared] == second.tokens[shared] &&
           second.targets[shared] == decoder::kNoTarget)
        ++shared;
    return shared;
}

// Scores the first PAIRS of ROWS. REQUIRES: ROWS has at least as many pairs.
PairScores score_pairs(const TokenRows& rows, int64_t pairs, decoder::TextScorer& scorer) {
    Progress progress("eval", "evaluating", pairs, "pairs");
    PairScores scores;
    const auto add = [&](const decoder::TextScore& score) {
        scores.of_answer.push_back(static_cast<float>(-score.loss));
        scores.tokens.push_back(score.targets);
    };
    for (int64_t pair = 0; pair < pairs; ++pair) {
        const HeldOutText chosen = answer_of(rows, 2 * pair),
                          rejected = answer_of(rows, 2 * pair + 1);
        add(scorer.score(chosen.tokens, chosen.targets, {.length = rows.length()}));
        const int64_t known = shared_prompt(chosen, rejected);
        add(scorer.score(rejected.tokens, rejected.targets,
                         {.known = known, .length = rows.length()}));
        progress.done(pair + 1);
    }
    return scores;
}

// Compares the two answers of each pair. Adds to JSON, and returns as a text, the fraction of pairs
// whose chosen answer is more likely than the rejected one, in total and per token. If ROWS have
// the log-probabilities of a reference model, also adds the fraction of pairs whose chosen answer
// has the larger gain, and the mean difference of the gains in nats. An answer's gain is its
// log-probability minus the log-probability that the reference model gives to it.
std::string describe_pairs(const TokenRows& rows, const PairScores& scores, JsonWriter& json) {
    const std::vector<float> reference = rows.reference();
    const int64_t pairs = std::ssize(scores.of_answer) / 2;
    int64_t likelier = 0, likelier_by_token = 0, gained = 0;
    double margin = 0;
    for (int64_t pair = 0; pair < pairs; ++pair) {
        const auto chosen = static_cast<size_t>(2 * pair), rejected = chosen + 1;
        const auto by_token = [&](size_t row) {
            return scores.of_answer[row] /
                   static_cast<double>(std::max<int64_t>(scores.tokens[row], 1));
        };
        likelier += scores.of_answer[chosen] > scores.of_answer[rejected] ? 1 : 0;
        likelier_by_token += by_token(chosen) > by_token(rejected) ? 1 : 0;
        if (reference.empty()) continue;
        const auto gain = [&](size_t row) {
            return static_cast<double>(scores.of_answer[row]) - reference[row];
        };
        gained += gain(chosen) > gain(rejected) ? 1 : 0;
        margin += gain(chosen) - gain(rejected);
    }
    const auto part = [&](int64_t count) {
        return static_cast<double>(count) / static_cast<double>(pairs);
    };
    json.field("pairs", pairs).field("chosen_likelier", part(likelier));
    json.field("chosen_likelier_by_token", part(likelier_by_token));
    std::string text = fmt::format(
        "{}: the chosen answer is more likely than the rejected one in {:.1f} % of them; by "
        "likelihood per token, in {:.1f} %\n",
        counted(pairs, "pair"), 100 * part(likelier), 100 * part(likelier_by_token));
    if (reference.empty()) return text;
    margin /= static_cast<double>(pairs);
    json.field("reward_accuracy", part(gained)).field("reward_margin", margin);
    return text + fmt::format(
                      "compared with the reference{}, the chosen answer gains on the rejected one "
                      "in {:.1f} % of the pairs (reward accuracy), by {:.4f} nats on average "
                      "(margin / beta)\n",
                      rows.reference_model().empty() ? "" : " " + printable(rows.reference_model()),
                      100 * part(gained), margin);
}

class Evaluation {
  public:
    Evaluation(const EvalArguments& arguments, decoder::StepRunner& runner)
        : arguments_(arguments), scorer_(runner) {}

    // Scores pairs by the likelihood of their answers. If the user asked for it, writes these
    // likelihoods into the file as its reference.
    void pairs(const HeldOut& data) {
        const PairScores scores = score_pairs(*data.pairs(), data.samples(), scorer_);
        text_ += describe_pairs(*data.pairs(), scores, json_);
        if (!arguments_.writes_reference) return;
        const storage::ReferenceModel model = {arguments_.decoder.model, arguments_.decoder.adapter,
                                               arguments_.decoder.gguf};
        const std::string before = data.pairs()->reference_model();
        data.pairs()->write_reference(scores.of_answer, model);
        text_ += fmt::format("wrote the reference of {} into {}{}\n",
                             counted(data.samples(), "pair"), printable(arguments_.data),
                             before.empty() || before == model.text()
                                 ? ""
                                 : fmt::format(", in place of the one of {}", printable(before)));
    }

    void held_out(const HeldOut& data) {
        const decoder::TextScore sum = score_held_out(data, scorer_, "eval");
        const auto targets_total = static_cast<double>(sum.targets);
        const double loss = sum.loss / targets_total;
        json_.field("samples", data.samples()).field("targets", sum.targets);
        json_.field("loss", loss).field("perplexity", std::exp(loss));
        json_.field("accuracy", static_cast<double>(sum.likeliest) / targets_total);
        text_ += fmt::format(
            "held-out loss {:.4f}, perplexity {:.3f}, {} targets in {} samples, {:.1f} % predicted "
            "right\n",
            loss, std::exp(loss), sum.targets, data.samples(),
            100 * static_cast<double>(sum.likeliest) / targets_total);
    }

    // Answers each question by the likelihood of its choices, and a second time by their likelihood
    // per byte.
    void choices(const std::vector<Question>& questions) {
        Progress progress("eval", "answering", std::ssize(questions), "questions");
        int64_t answered = 0, right = 0, right_by_byte = 0;
        for (const Question& question : questions) {
            size_t best = 0, best_by_byte = 0;
            std::vector<double> losses;
            for (const std::vector<int32_t>& choice : question.choices)
                losses.push_back(loss_of(question.prompt, choice));
            const auto by_byte = [&](size_t i) {
                return losses[i] / static_cast<double>(question.bytes[i]);
            };
            for (size_t i = 1; i < losses.size(); ++i) {
                if (losses[i] < losses[best]) best = i;
                if (by_byte(i) < by_byte(best_by_byte)) best_by_byte = i;
            }
            right += best == question.answer ? 1 : 0;
            right_by_byte += best_by_byte == question.answer ? 1 : 0;
            progress.done(++answered);
        }
        const auto total = static_cast<double>(questions.size());
        json_.field("questions", questions.size());
        json_.field("right", static_cast<double>(right) / total);
        json_.field("right_by_byte", static_cast<double>(right_by_byte) / total);
        text_ += fmt::format(
            "{} questions: {:.1f} % right by likelihood, {:.1f} % by likelihood per byte\n",
            questions.size(), 100 * static_cast<double>(right) / total,
            100 * static_cast<double>(right_by_byte) / total);
    }

    void begin() { json_.begin_object(); }
    void print() {
        json_.end_object();
        fmt::print("{}", arguments_.json ? json_.text() + "\n" : text_);
    }

  private:
    double loss_of(const std::vector<int32_t>& prompt, const std::vector<int32_t>& choice) {
        std::vector<int32_t> tokens = prompt;
        tokens.insert(tokens.end(), choice.begin(), choice.end() - 1);
        std::vector<int32_t> targets(prompt.size() - 1, decoder::kNoTarget);
        targets.insert(targets.end(), choice.begin(), choice.end());
        return scorer_.score(tokens, targets).loss;
    }

    const EvalArguments& arguments_;
    decoder::TextScorer scorer_;
    JsonWriter json_;
    std::string text_;
};

void require_reference(const EvalArguments& arguments, const HeldOut& data) {
    if (data.pairs() == nullptr)
        fail(ExitCode::kInput,
             "--write-reference: {} contains no pairs of answers: make them with `dslaunch data "
             "prepare` from lines with the fields chosen and rejected",
             printable(arguments.data));
    if (arguments.samples_max > 0)
        fail(ExitCode::kUsage, "--write-reference: all pairs need a reference: remove --samples");
}

HeldOutFile held_out_file(const EvalArguments& arguments) {
    return {arguments.data, arguments.decoder.model, arguments.dtype, arguments.samples_max};
}

void evaluate(const EvalArguments& arguments, RankProcess& process) {
    if (arguments.data.empty() && arguments.choices.empty())
        fail(ExitCode::kUsage, "nothing to evaluate: give --data or --choices");
    if (process.is_first() && !arguments.data.empty())
        require_held_out(held_out_file(arguments), "--data");
    DecoderSession session(arguments.decoder, process);
    if (!process.is_first()) {
        session.open(0);
        return session.finish();
    }
    std::optional<HeldOut> data;
    std::vector<Question> questions;
    int64_t longest = 1;
    if (!arguments.data.empty()) {
        data.emplace(held_out_file(arguments), "eval", session.context(),
                     session.folder().config.vocabulary);
        longest = data->length();
        if (arguments.writes_reference) require_reference(arguments, *data);
    }
    if (!arguments.choices.empty()) {
        const TextFiles files(session.text_folder(), session.folder().config.vocabulary);
        questions = read_questions(arguments, files);
        for (const Question& question : questions)
            for (const std::vector<int32_t>& choice : question.choices)
                longest = std::max(longest, std::ssize(question.prompt) + std::ssize(choice));
    }
    session.open(decoder::pages_for(longest));
    const auto begin = std::chrono::steady_clock::now();
    Evaluation evaluation(arguments, session.runner());
    evaluation.begin();
    if (data && data->pairs() != nullptr) {
        evaluation.pairs(*data);
    } else if (data) {
        evaluation.held_out(*data);
    }
    if (!questions.empty()) evaluation.choices(questions);
    evaluation.print();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    log_info("eval", "{:.1f} s{}", seconds.count(),
             data ? fmt::format(", {:.1f} samples a second",
                                static_cast<double>(data->samples()) / seconds.count())
                  : "");
    session.finish();
}

}  // namespace

int eval_main(int argc, char** argv) {
    CommandLine app(
        {.does = "Measures loss and perplexity of a language model on held-out text, and which of "
                 "several answers it finds most likely.",
         .examples = {"dslaunch eval Qwen2.5-0.5B --data rows.safetensors",
                      "dslaunch eval Qwen2.5-0.5B --choices questions.jsonl --weights int8",
                      "dslaunch eval Qwen2.5-0.5B --data pairs.safetensors --write-reference"},
         .docs = "docs/guide/generate.md"},
        "dslaunch eval");
    EvalArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    return run_with_decoder(arguments.decoder, "eval",
                            [&](RankProcess& process) { evaluate(arguments, process); });
}

}  // namespace dslaunch::worker
