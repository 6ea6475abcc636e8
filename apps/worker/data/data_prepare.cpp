// dsworker data prepare: makes rows of tokens from lines of text and chats.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "kernels/thread_team.h"
#include "launch/machine/machine_topology.h"
#include "storage/disk/output_place.h"
#include "storage/huggingface/named_place.h"
#include "storage/tokens/row_vocabulary.h"
#include "text/rows/row_packer.h"
#include "worker/data/data_commands.h"
#include "worker/data/line_encoder.h"
#include "worker/data/line_findings.h"
#include "worker/data/row_maker.h"
#include "worker/data/sample_lines.h"

namespace dslaunch::worker {
namespace {

struct PrepareArguments {
    std::vector<std::string> files;  // the files to read; "-" is stdin
    std::string model;               // the folder with the tokenizer and the chat template
    std::string out;
    text::PackRules rows;  // long_documents is not used; length 0: the longest document's
    std::optional<std::string> long_name;               // --long: split, cut or drop
    std::optional<text::LongDocuments> long_documents;  // unset: split documents, cut pairs
    LineRules lines;
    bool keeps_apart = true;  // packed rows have a column with document numbers
    int64_t bad_lines_max = 100;
    int64_t threads = 0;  // 0: one for each processor
    bool force = false;   // may overwrite OUT
};

constexpr int64_t kMegabyte = 1'000'000;

// Turns lines of training text into rows of tokens and targets that a model trains on, and lines
// with two answers into pairs of rows. Several threads encode the lines; the rows are in the order
// of the lines, whatever the number of threads.
class Preparation {
  public:
    explicit Preparation(const PrepareArguments& arguments)
        : arguments_(arguments),
          encoder_(arguments.model, arguments.lines),
          team_(arguments.threads > 0 ? static_cast<int>(arguments.threads)
                                      : launch::processors_granted()),
          lines_(arguments.files),
          rows_(rules_of(arguments, encoder_.ends())),
          findings_(arguments.files, arguments.bad_lines_max),
          progress_("data", "preparing", megabytes_of(arguments.files), "MB") {}

    // Writes ARGUMENTS.out, whole or not at all, and reports the findings. Throws Error{kInput} if
    // a file cannot be read, if too many lines are bad, or if there is no row; throws Error{kDisk}
    // if ARGUMENTS.out cannot be written.
    void run() {
        for (std::vector<SampleLine> block = lines_.next(); !block.empty(); block = lines_.next()) {
            std::vector<EncodedLine> encoded(block.size());
            team_.for_chunks(std::ssize(block), [&](int64_t i) {
                encoded[static_cast<size_t>(i)] = encoder_.encode(block[static_cast<size_t>(i)]);
            });
            for (size_t i = 0; i < block.size(); ++i) take(block[i], encoded[i]);
            progress_.done(lines_.bytes() / kMegabyte);
        }
        rows_.finish();
        if (rows_.rows().rows + rows_.pairs().pairs == 0) fail_without_rows();
        progress_.begin("writing the rows");
        rows_.write(storage::row_origin(arguments_.model));
        progress_.end();
        finish();
    }

  private:
    // Returns the size of FILES in MB; 0 if it is not known.
    static int64_t megabytes_of(const std::vector<std::string>& files) {
        int64_t bytes = 0;
        for (const std::string& file : files) {
            std::error_code unknown;
            const auto size = std::filesystem::file_size(file, unknown);
            if (unknown) return 0;
            bytes += static_cast<int64_t>(size);
        }
        return bytes / kMegabyte;
    }
    static RowMakerRules rules_of(const PrepareArguments& arguments,
                                  const std::vector<int32_t>& ends) {
        RowMakerRules rules;
        rules.rows = arguments.rows;
        rules.rows.long_documents = arguments.long_documents.value_or(text::LongDocuments::kSplit);
        if (!ends.empty()) rules.rows.padding = ends.front();
        rules.numbers = arguments.rows.packs && arguments.keeps_apart;
        rules.drops_pairs = arguments.long_documents == text::LongDocuments::kDrop;
        rules.out = arguments.out;
        rules.model = arguments.model;
        return rules;
    }

    // Returns true if the lines are pairs of answers. All lines must be of the same kind as the
    // first good line.
    [[nodiscard]] bool holds_pairs() const { return of_pairs_.value_or(false); }

    void take(const SampleLine& line, const EncodedLine& encoded) {
        if (!encoded.sample.reason.empty()) return findings_.refuse(line, encoded.sample.reason);
        if (!of_pairs_ && encoded.is_pair()) require_pair_options();
        if (!of_pairs_) of_pairs_ = encoded.is_pair();
        if (*of_pairs_ != encoded.is_pair())
            return findings_.refuse(
                line, encoded.is_pair() ? "is a pair of answers, but the lines before it are not"
                                        : "is not a pair of answers, but the lines before it are");
        findings_.add(line, encoded);
        if (encoded.is_pair()) {
            rows_.add_pair(encoded.sample.document, encoded.rejected.document);
        } else {
            rows_.add(encoded.sample.document);
        }
    }

    void require_pair_options() const {
        const auto refuse_option = [](const char* option, const char* why) {
            fail(ExitCode::kUsage, "{} cannot be used, because the lines are pairs of answers: {}",
                 option, why);
        };
        if (arguments_.rows.packs) refuse_option("--pack", "each answer needs its own row");
        if (arguments_.lines.learns_all)
            refuse_option("--learn-all", "only the answers are compared");
        if (arguments_.long_documents == text::LongDocuments::kSplit)
            refuse_option("--long split",
                          "the beginning of each answer must be kept; use --long cut or drop");
    }

    [[noreturn]] void fail_without_rows() const {
        const std::string file = printable(arguments_.files.front());
        findings_.tell_repeated();
        if (!lines_.has_text())
            fail(ExitCode::kInput, "{}: {}", file,
                 lines_.bytes() == 0 ? "is empty" : "contains only blank lines");
        fail(ExitCode::kInput, "{}: no line produced a row ({}{})", file,
             counted(findings_.bad_lines(), "bad line"),
             rows_.rows().unlearned_rows + rows_.pairs().unanswered > 0
                 ? "; the others contain nothing to learn"
                 : "");
    }

    [[nodiscard]] double megabytes_a_second() const {
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
        return static_cast<double>(lines_.bytes()) / 1e6 / std::max(seconds.count(), 1e-9);
    }

    void finish() const {
        findings_.tell(encoder_.has_chat_template() && !arguments_.lines.makes_chats);
        rows_.tell_long(findings_.are_texts());
        rows_.tell_unknown_tokens();
        if (rows_.pairs().equal > 0)
            log_warn("data", "{} with two identical answers: nothing is learned from them",
                     counted(rows_.pairs().equal, "pair"));
        log_info("data", "{} threads, {:.1f} MB/s", team_.threads(), megabytes_a_second());
        const text::PackCounts& rows = rows_.rows();
        const text::PairCounts& pairs = rows_.pairs();
        const int64_t made = rows.rows + 2 * pairs.pairs;
        const int64_t filled = rows.tokens + pairs.tokens;
        const int64_t places = made * rows_.length();
        fmt::print(
            "wrote {}: {}{} rows of length {}, {} tokens ({:.1f} % padding), {} of them learned\n",
            printable(arguments_.out), holds_pairs() ? counted(pairs.pairs, "pair") + " in " : "",
            made, rows_.length(), filled,
            100.0 * static_cast<double>(places - filled) / static_cast<double>(places),
            rows.learned + pairs.learned);
    }

    const PrepareArguments& arguments_;
    LineEncoder encoder_;
    kernels::ThreadTeam team_;
    SampleLines lines_;
    RowMaker rows_;
    LineFindings findings_;
    std::optional<bool> of_pairs_;  // unset until a line is good
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    Progress progress_;
};

void declare(CommandLine& prepare, PrepareArguments& arguments) {
    prepare
        .add("FILE", arguments.files,
             "JSON lines, a JSON list, Parquet, or plain text (.txt, .md); an entry has text, "
             "messages, conversations, a question and its answer, or chosen and rejected; - for "
             "stdin")
        .required();
    prepare
        .add("--model DIR", arguments.model,
             "the model's folder, with tokenizer.json and the chat template")
        .required();
    prepare.add("-o,--output FILE", arguments.out, "the file of rows to write, .safetensors")
        .required();
    prepare
        .add("--context N", arguments.rows.length,
             "tokens in a row; default: as many as the longest document has, at most 1024")
        .at_least(2);
    prepare.add("--pack", arguments.rows.packs, "put several documents into a row where they fit");
    prepare.add("!--attend-all", arguments.keeps_apart,
                "with --pack: write no column `documents`, for a model whose forward does not "
                "accept it; each document then attends to earlier documents of its row");
    prepare
        .add(
            "--long NAME", arguments.long_name,
            "what to do with a document longer than a row: split, cut or drop; default: split, and "
            "cut for pairs of answers")
        .one_of({"split", "cut", "drop"});
    prepare.add("--learn-all", arguments.lines.learns_all, "learn questions too, not only answers");
    prepare.add("--as-chat", arguments.lines.makes_chats,
                "write a prompt and its completion (or its chosen and rejected answer) as a chat; "
                "default: as one plain text, even if the model has a chat template");
    prepare.add("!--no-end", arguments.lines.ends_texts,
                "write no end token after texts without a chat template");
    prepare
        .add("--max-bad-lines N", arguments.bad_lines_max,
             "maximum number of bad lines to leave out; more are an error")
        .show_default()
        .at_least(0);
    prepare.add("--force", arguments.force, storage::kForceHelp);
    prepare.add("--threads N", arguments.threads, "number of threads; 0: one for each processor")
        .show_default()
        .at_least(0);
}

std::optional<text::LongDocuments> long_documents_of(const std::optional<std::string>& name) {
    using text::LongDocuments;
    if (!name) return std::nullopt;
    return *name == "split" ? LongDocuments::kSplit
           : *name == "cut" ? LongDocuments::kCut
                            : LongDocuments::kDrop;
}

void run_prepare(PrepareArguments& arguments) {
    arguments.long_documents = long_documents_of(arguments.long_name);
    if (!arguments.out.ends_with(".safetensors"))
        fail(ExitCode::kUsage, "--output {}: the name of a file of rows must end with .safetensors",
             arguments.out);
    arguments.model = storage::tokenizer_folder_at(arguments.model);
    storage::require_new_file(arguments.out, arguments.force);
    std::error_code missing;
    for (const std::string& file : arguments.files)
        if (std::filesystem::equivalent(file, arguments.out, missing))
            fail(ExitCode::kUsage,
                 "--output {}: is also an input, and would be overwritten: name another file",
                 arguments.out);
    Preparation(arguments).run();
}

}  // namespace

std::function<void()> add_data_prepare(CommandLine& app) {
    const auto arguments = std::make_shared<PrepareArguments>();
    CommandLine& prepare = app.subcommand(
        "prepare",
        {.does = "Encodes text and chats with the tokenizer and chat template of a model, and "
                 "writes rows of tokens. In chats, only the answers are learned.",
         .examples = {"dslaunch data prepare c.jsonl --model DIR --context 64 "
                      "--pack -o r.safetensors"},
         .docs = kDataDocs});
    declare(prepare, *arguments);
    return [arguments] { run_prepare(*arguments); };
}

}  // namespace dslaunch::worker
