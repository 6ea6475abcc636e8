// dsworker data show: prints a row of tokens, or a pair of rows, as text.
#include <fmt/core.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/files/input_file.h"
#include "storage/huggingface/named_place.h"
#include "text/rows/row_packer.h"
#include "text/tokenizer/tokenizer.h"
#include "worker/data/data_commands.h"
#include "worker/data/token_rows.h"

namespace dslaunch::worker {
namespace {

struct ShowRowArguments {
    std::string file;
    std::string model;  // the folder with the tokenizer; empty: tokens are shown as numbers
    int64_t row = 0;    // the row or pair to show
};

// Returns the text of a row with its targets in [[double brackets]]. Without a tokenizer, returns
// numbers.
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
        // A token is learned if it is the target of the token before it.
        const bool learned = i > 0 && targets[i - 1] != text::kNotLearned;
        if (learned != is_learned) flush();
        is_learned = learned;
        run.push_back(tokens[i]);
    }
    flush();
    text = printable_lines(text, 0);
    return padding > 0 ? fmt::format("{}\n({} tokens of padding)", text, padding) : text;
}

// Prints a row, or both rows of a pair if the file contains pairs. The part to be learned is in
// [[double brackets]], and padding is counted. Throws Error{kInput} if the file has no rows of
// tokens and targets, or if it does not have the wanted row.
void show_row(const ShowRowArguments& arguments) {
    storage::require_rows(arguments.file, arguments.model);
    const TokenRows rows(arguments.file);
    const int64_t rows_each = rows.has_pairs() ? 2 : 1;
    const int64_t last = rows.count() / rows_each - 1;
    if (arguments.row < 0 || arguments.row > last)
        fail(ExitCode::kInput, "{}: has only rows 0 to {}, and no row {}",
             printable(arguments.file), last, arguments.row);
    std::optional<text::Tokenizer> tokenizer;
    if (!arguments.model.empty()) tokenizer = text::Tokenizer::of_folder(arguments.model);
    if (!tokenizer)
        log_info("data", "the row is shown as token ids; --model FOLDER shows it as text");
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
                : fmt::format(", log-probability {:.4f} under the reference model", reference[row]);
        fmt::print("{}{}:\n{}\n", row % 2 == 0 ? "chosen" : "rejected", of_reference,
                   text_of(rows, row, codec));
    }
}

}  // namespace

std::function<void()> add_data_show(CommandLine& app) {
    const auto arguments = std::make_shared<ShowRowArguments>();
    CommandLine& show = app.subcommand(
        "show", {.does = "Prints a row, with learned text in [[double brackets]].",
                 .examples = {"dslaunch data show rows.safetensors --model Qwen2.5-0.5B --row 3"},
                 .docs = kDataDocs});
    show.add("FILE", arguments->file, "a file of rows").required();
    show.add("--model DIR", arguments->model, "the folder with tokenizer.json");
    show.add("--row N", arguments->row, "number of the row, or of the pair of answers, from 0")
        .show_default();
    return [arguments] {
        if (!arguments->model.empty())
            arguments->model = storage::tokenizer_folder_at(arguments->model);
        show_row(*arguments);
    };
}

}  // namespace dslaunch::worker
