// dsworker eval: measures how well a language model predicts held-out text, and which of several
// answers it finds most likely.
#include <fmt/core.h>

#include <chrono>
#include <cmath>

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
#include "worker/text/choice_questions.h"
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
    Evaluation(const EvalArguments& arguments, decoder::BatchRunner& runner)
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
        text_ +=
            fmt::format("wrote the reference of {} into {}{}\n", counted(data.samples(), "pair"),
                        printable(arguments_.data),
                        before.empty() || before == model.text()
                            ? ""
                            : fmt::format(", in place of the reference of {}", printable(before)));
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

    void choices(const std::vector<ChoiceQuestion>& questions) {
        const ChoiceScore score = score_choices(questions, scorer_);
        const auto total = static_cast<double>(questions.size());
        json_.field("questions", questions.size());
        json_.field("right", static_cast<double>(score.right) / total);
        json_.field("right_by_byte", static_cast<double>(score.right_by_byte) / total);
        text_ += fmt::format(
            "{} questions: {:.1f} % right by likelihood, {:.1f} % by likelihood per byte\n",
            questions.size(), 100 * static_cast<double>(score.right) / total,
            100 * static_cast<double>(score.right_by_byte) / total);
    }

    void begin() { json_.begin_object(); }
    void print() {
        json_.end_object();
        fmt::print("{}", arguments_.json ? json_.text() + "\n" : text_);
    }

  private:
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
    std::vector<ChoiceQuestion> questions;
    int64_t longest = 1;
    if (!arguments.data.empty()) {
        data.emplace(held_out_file(arguments), "eval", session.context(),
                     session.folder().config.vocabulary);
        longest = data->length();
        if (arguments.writes_reference) require_reference(arguments, *data);
    }
    if (!arguments.choices.empty()) {
        const TextFiles files(session.text_folder(), session.folder().config.vocabulary);
        questions = read_choice_questions(arguments.choices, arguments.samples_max, files);
        for (const ChoiceQuestion& question : questions)
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
