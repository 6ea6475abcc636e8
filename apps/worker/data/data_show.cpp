#include "worker/data/data_show.h"

#include <fmt/core.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/files/input_file.h"
#include "text/rows/row_packer.h"
#include "text/tokenizer/tokenizer.h"
#include "worker/data/token_rows.h"

namespace dslaunch::worker {

namespace {

using text::kNotLearned;

// The number of tokens at the end of a row that are all the last one and teach nothing.
size_t padding_of(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
    size_t padding = 0;
    while (padding + 1 < tokens.size() && tokens[tokens.size() - 1 - padding] == tokens.back() &&
           targets[tokens.size() - 1 - padding] == kNotLearned &&
           targets[tokens.size() - 2 - padding] != tokens.back())
        ++padding;
    return padding;
}

// The text of a row, with what is learned in [[double brackets]]. Without a tokenizer, numbers.
std::string text_of(const TokenRows& rows, int64_t row, const text::Tokenizer* tokenizer) {
    const std::vector<int32_t> tokens = rows.tokens(row);
    const std::vector<int32_t> targets = rows.targets(row);
    const size_t padding = padding_of(tokens, targets);
    std::string text;
    std::vector<int32_t> run;
    bool is_learned = false;
    const auto flush = [&] {
        if (run.empty()) return;
        std::string part;
        if (tokenizer != nullptr) {
            part = tokenizer->decode(run, /*skip_special=*/false);
        } else {
            for (const int32_t token : run) part += fmt::format("{} ", token);
        }
        text += is_learned ? fmt::format("[[{}]]", part) : part;
        run.clear();
    };
    for (size_t i = 0; i + padding < tokens.size(); ++i) {
        // A token is learned where it is the target of the one before.
        const bool learned = i > 0 && targets[i - 1] != kNotLearned;
        if (learned != is_learned) flush();
        is_learned = learned;
        run.push_back(tokens[i]);
    }
    flush();
    text = printable_lines(text, 0);
    return padding > 0 ? fmt::format("{}\n({} tokens of padding)", text, padding) : text;
}

}  // namespace

void show_row(const ShowRowArguments& arguments) {
    storage::require_rows(arguments.file, arguments.model);
    const TokenRows rows(arguments.file);
    const int64_t rows_each = rows.has_pairs() ? 2 : 1;
    const int64_t last = rows.count() / rows_each - 1;
    if (arguments.row < 0 || arguments.row > last)
        fail(ExitCode::kInput, "{}: has rows 0 to {}, and no {}", printable(arguments.file), last,
             arguments.row);
    std::optional<text::Tokenizer> tokenizer;
    if (!arguments.model.empty()) tokenizer = text::Tokenizer::of_folder(arguments.model);
    if (!tokenizer) log_info("data", "numbers of tokens; --model FOLDER shows them as text");
    const text::Tokenizer* const codec = tokenizer ? &*tokenizer : nullptr;
    if (!rows.has_pairs()) {
        fmt::print("{}\n", text_of(rows, arguments.row, codec));
        return;
    }
    const std::vector<float> reference = rows.reference();
    for (const int64_t row : {2 * arguments.row, 2 * arguments.row + 1}) {
        const std::string of_reference =
            reference.empty()
                ? ""
                : fmt::format(", log-probability {:.4f} by the reference", reference[row]);
        fmt::print("{}{}:\n{}\n", row % 2 == 0 ? "chosen" : "rejected", of_reference,
                   text_of(rows, row, codec));
    }
}

void show_stats(const std::string& file) {
    storage::require_rows(file);
    const TokenRows rows(file);
    int64_t learned = 0, padding = 0;
    for (int64_t row = 0; row < rows.count(); ++row) {
        const std::vector<int32_t> targets = rows.targets(row);
        padding += static_cast<int64_t>(padding_of(rows.tokens(row), targets));
        for (const int32_t target : targets) learned += target != kNotLearned ? 1 : 0;
    }
    const int64_t places = rows.count() * rows.length();
    if (rows.has_pairs()) {
        const bool has_reference = !rows.reference().empty();
        fmt::print("pairs    {}\nreference  {}\n", rows.count() / 2,
                   !has_reference                   ? "none"
                   : rows.reference_model().empty() ? "of a model that is not named"
                                                    : "of " + printable(rows.reference_model()));
    }
    fmt::print("rows     {}\nlength   {}\ntokens   {}\nlearned  {}\npadding  {} ({:.1f} %)\n",
               rows.count(), rows.length(), places - padding, learned, padding,
               100.0 * static_cast<double>(padding) / static_cast<double>(places));
}

}  // namespace dslaunch::worker
