// dsworker data: rows of tokens from lines of text, and what such rows hold.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "kernels/thread_team.h"
#include "storage/disk/output_place.h"
#include "storage/files/input_file.h"
#include "storage/huggingface/generation_config.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "storage/tables/prepared_rows.h"
#include "text/chat/chat_line.h"
#include "text/rows/encode_sample.h"
#include "text/rows/row_packer.h"
#include "text/tokenizer/tokenizer.h"
#include "worker/data/row_maker.h"
#include "worker/data/sample_lines.h"
#include "worker/data/token_rows.h"
#include "worker/processors.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

constexpr const char* kDocs = "docs/guide/data.md";

struct PrepareArguments {
    std::vector<std::string> files;  // of lines of JSON; "-" is stdin
    std::string model;               // the folder with the tokenizer and the chat template
    std::string out;
    text::PackRules rows;  // but for long_documents; length 0: by the longest document
    std::optional<text::LongDocuments> long_documents;  // unset: split, and pairs are cut
    bool learns_all = false;
    bool makes_chats = false;  // of a prompt and its completion that are texts, too
    bool keeps_apart = true;   // packed rows tell the model the documents of their tokens
    bool ends_texts = true;    // texts that no template has ended get the model's end token
    int64_t bad_lines_max = 100;
    int64_t threads = 0;  // 0: one for each processor
    bool force = false;   // replaces a file OUT
};

constexpr size_t kReasonsShown = 10;
constexpr size_t kUnreadMax = 64;
constexpr int64_t kMegabyte = 1'000'000;

// Lines of training text -> rows of tokens and targets that a model trains on; lines of two answers
// -> pairs of rows. Lines are encoded by several threads, and rows come in the order of the lines
// whatever their number.
class Preparation {
  public:
    explicit Preparation(const PrepareArguments& arguments)
        : arguments_(arguments),
          tokenizer_(text::Tokenizer::of_folder(arguments.model)),
          ends_(end_tokens(arguments.model, tokenizer_)),
          chat_(text::ChatTemplates::read(arguments.model)),
          team_(arguments.threads > 0 ? static_cast<int>(arguments.threads) : processors_granted()),
          lines_(arguments.files),
          rows_(rules_of(arguments, ends_)),
          progress_("data", "preparing", megabytes_of(arguments.files), "MB") {
        rules_.tokenizer = &tokenizer_;
        rules_.chat = chat_ ? &*chat_ : nullptr;
        rules_.learns_all = arguments.learns_all;
        rules_.makes_chats = arguments.makes_chats;
        if (arguments.ends_texts) rules_.end_tokens = ends_;
    }

    // Writes ARGUMENTS.out, whole or not at all, and says what was found. Throws Error{kInput} for
    // files that cannot be read, too many bad lines, or no row; Error{kDisk}.
    void run() {
        for (std::vector<SampleLine> block = lines_.next(); !block.empty(); block = lines_.next()) {
            std::vector<Encoded> encoded(block.size());
            team_.for_chunks(std::ssize(block), [&](int64_t i) {
                encoded[static_cast<size_t>(i)] = encode(block[static_cast<size_t>(i)]);
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
    struct Encoded {
        text::EncodedSample sample;
        text::EncodedSample rejected;  // of a pair; else empty
        text::ChatFormat format = text::ChatFormat::kText;
        std::vector<std::string> unread;  // columns of the line
        bool is_continued = false;        // it is text that goes on
        bool has_empty_answer = false;

        [[nodiscard]] bool is_pair() const { return format == text::ChatFormat::kPreference; }
    };

    // The bad lines of one reason.
    struct Reason {
        std::string first;  // "FILE:LINE"
        int64_t lines = 0;
    };

    // Returns 0 if the size is not known.
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

    // Returns the tokens that end a text: the tokenizer's first, as in TRL, then the model's.
    static std::vector<int32_t> end_tokens(const std::string& model,
                                           const text::Tokenizer& tokenizer) {
        std::vector<int32_t> ends;
        if (const auto name = text::special_token_of(model, "eos_token"))
            if (const auto id = tokenizer.id_of(*name)) ends.push_back(*id);
        if (!storage::model_folder_of(model)) return ends;
        for (const int32_t id : storage::end_tokens_of(model))
            if (std::ranges::count(ends, id) == 0) ends.push_back(id);
        return ends;
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

    Encoded encode(const SampleLine& line) const {
        Encoded made;
        made.sample.reason = line.reason;
        if (!line.reason.empty()) return made;
        text::ChatLine parsed = text::parse_chat_line(line.text);
        if (!parsed.sample) {
            made.sample.reason = parsed.reason;
            return made;
        }
        made.format = parsed.sample->format;
        made.unread = std::move(parsed.unread);
        made.is_continued = parsed.sample->is_continued;
        made.has_empty_answer = parsed.sample->has_empty_answer;
        made.sample = text::encode_sample(*parsed.sample, rules_);
        if (!made.is_pair() || !made.sample.reason.empty()) return made;
        made.rejected =
            text::encode_sample(*parsed.sample, rules_, text::PreferenceSide::kRejected);
        if (!made.rejected.reason.empty()) made.sample.reason = "rejected: " + made.rejected.reason;
        text::share_prompt(made.sample, made.rejected);
        return made;
    }

    // Returns true for pairs. All lines are of the kind of the first good one.
    [[nodiscard]] bool holds_pairs() const { return of_pairs_.value_or(false); }

    void take(const SampleLine& line, const Encoded& encoded) {
        if (!encoded.sample.reason.empty()) return refuse(line, encoded.sample.reason);
        if (!of_pairs_ && encoded.is_pair()) require_pair_options();
        if (!of_pairs_) of_pairs_ = encoded.is_pair();
        if (*of_pairs_ != encoded.is_pair())
            return refuse(line, encoded.is_pair()
                                    ? "is a pair of answers, and the lines before are none"
                                    : "is no pair of answers, as the lines before are");
        ++formats_[text::chat_format_name(encoded.format)];
        continued_ += encoded.is_continued ? 1 : 0;
        if (encoded.has_empty_answer && empty_answers_++ == 0)
            first_empty_ =
                fmt::format("{}:{}", printable(arguments_.files[line.file]), line.number);
        if (!encoded.sample.lost.empty()) ++lost_[encoded.sample.lost];
        for (const std::string& column : encoded.unread)
            if (unread_.size() < kUnreadMax) unread_.insert(column);
        if (encoded.is_pair()) {
            rows_.add_pair(encoded.sample.document, encoded.rejected.document);
        } else {
            rows_.add(encoded.sample.document);
        }
    }

    void require_pair_options() const {
        const auto refuse_option = [](const char* option, const char* why) {
            fail(ExitCode::kUsage, "{}: the lines are pairs of answers: {}", option, why);
        };
        if (arguments_.rows.packs) refuse_option("--pack", "each answer has a row of its own");
        if (arguments_.learns_all) refuse_option("--learn-all", "the answers alone are compared");
        if (arguments_.long_documents == text::LongDocuments::kSplit)
            refuse_option("--long split", "of an answer the beginning counts: cut or drop");
    }

    void refuse(const SampleLine& line, const std::string& reason) {
        const std::string where =
            fmt::format("{}:{}", printable(arguments_.files[line.file]), line.number);
        if (++bad_lines_ > arguments_.bad_lines_max) {
            tell_repeated();
            fail(ExitCode::kInput,
                 "{}: {}; with it more than {} lines are bad (--max-bad-lines allows more)", where,
                 printable(reason), arguments_.bad_lines_max);
        }
        if (reasons_.size() >= kReasonsShown && !reasons_.contains(reason)) return;
        Reason& said = reasons_[reason];
        if (++said.lines > 1) return;
        said.first = where;
        log_warn("data", "{}: left out: {}", where, reason);
    }

    // Says how often the reasons that were said once have come again.
    void tell_repeated() const {
        for (const auto& [reason, said] : reasons_)
            if (said.lines > 1)
                log_warn("data", "{} more left out for the reason of {}",
                         counted(said.lines - 1, "line"), said.first);
    }

    [[noreturn]] void fail_without_rows() const {
        const std::string file = printable(arguments_.files.front());
        tell_repeated();
        if (!lines_.has_text())
            fail(ExitCode::kInput, "{}: {}", file,
                 lines_.bytes() == 0 ? "is empty" : "holds blank lines alone");
        fail(ExitCode::kInput, "{}: no line gave a row ({}{})", file,
             counted(bad_lines_, "bad line"),
             rows_.rows().unlearned_rows + rows_.pairs().unanswered > 0
                 ? "; nothing in the others is to be learned"
                 : "");
    }

    [[nodiscard]] double megabytes_a_second() const {
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
        return static_cast<double>(lines_.bytes()) / 1e6 / std::max(seconds.count(), 1e-9);
    }

    void finish() const {
        std::string formats;
        for (const auto& [name, lines] : formats_)
            formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", lines, name);
        tell_repeated();
        log_info("data", "lines: {}; {} bad", formats, bad_lines_);
        tell_unread();
        rows_.tell_long(formats_.size() == 1 && formats_.contains("text"));
        if (rows_.pairs().equal > 0)
            log_warn("data", "{} whose answers are the same: nothing is learned from them",
                     counted(rows_.pairs().equal, "pair"));
        log_info("data", "{} threads, {:.1f} MB/s", team_.threads(), megabytes_a_second());
        const text::PackCounts& rows = rows_.rows();
        const text::PairCounts& pairs = rows_.pairs();
        const int64_t made = rows.rows + 2 * pairs.pairs;
        const int64_t filled = rows.tokens + pairs.tokens;
        const int64_t places = made * rows_.length();
        fmt::print("wrote {}: {}{} rows of {}, {} tokens ({:.1f} % padding), {} of them learned\n",
                   printable(arguments_.out),
                   holds_pairs() ? counted(pairs.pairs, "pair") + " in " : "", made, rows_.length(),
                   filled,
                   100.0 * static_cast<double>(places - filled) / static_cast<double>(places),
                   rows.learned + pairs.learned);
    }

    void tell_unread() const {
        for (const auto& [part, lines] : lost_)
            log_warn("data",
                     "{} with {} that the model's chat template does not write: what the template "
                     "leaves out is not learned",
                     counted(lines, "line"), part);
        if (empty_answers_ > 0)
            log_warn("data",
                     "{} with an empty answer, the first at {}: the model learns to say nothing; "
                     "take them out if that is not meant",
                     counted(empty_answers_, "line"), first_empty_);
        if (!unread_.empty())
            log_info(
                "data", "columns that are not read: {}",
                printable(join(std::vector<std::string>(unread_.begin(), unread_.end()), ", ")));
        if (continued_ > 0 && chat_ && !arguments_.makes_chats)
            log_info("data",
                     "{} of text that goes on, for which the chat template is not used: --as-chat "
                     "uses it",
                     counted(continued_, "line"));
    }

    const PrepareArguments& arguments_;
    text::Tokenizer tokenizer_;
    std::vector<int32_t> ends_;
    std::optional<text::ChatTemplates> chat_;
    text::EncodeRules rules_;
    kernels::ThreadTeam team_;
    SampleLines lines_;
    RowMaker rows_;
    int64_t empty_answers_ = 0;
    std::string first_empty_;       // "FILE:LINE"
    std::optional<bool> of_pairs_;  // unset until a line is good
    std::map<std::string, int64_t> formats_;
    std::map<std::string, int64_t> lost_;  // parts, and of how many lines
    std::set<std::string> unread_;         // columns
    int64_t continued_ = 0;                // lines of text that goes on
    int64_t bad_lines_ = 0;
    std::map<std::string, Reason> reasons_;  // that were said
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    Progress progress_;
};

void declare_prepare(CommandLine& app, PrepareArguments& arguments,
                     std::optional<std::string>& long_documents) {
    app.add("FILE", arguments.files,
            "lines or a list of JSON, Parquet, or plain text (.txt, .md); an entry has text, "
            "messages, conversations, a question and its answer, or chosen and rejected; - for "
            "stdin")
        .required();
    app.add("--model DIR", arguments.model,
            "the model's folder, with tokenizer.json and the chat template")
        .required();
    app.add("-o,--out FILE", arguments.out, "the file of rows to write, .safetensors").required();
    app.add("--context N", arguments.rows.length,
            "tokens in a row; default: as many as the longest document has, 1024 at most")
        .at_least(2);
    app.add("--pack", arguments.rows.packs, "put several documents into a row where they fit");
    app.add("!--attend-all", arguments.keeps_apart,
            "with --pack: write no column `documents`, for a model whose forward does not take it; "
            "documents then see earlier documents of their row");
    app.add("--long NAME", long_documents,
            "what to do with a document longer than a row: split, cut or drop; default: split, and "
            "cut for pairs of answers")
        .one_of({"split", "cut", "drop"});
    app.add("--learn-all", arguments.learns_all, "learn questions too, not only answers");
    app.add("--as-chat", arguments.makes_chats,
            "write a prompt and its completion (or its chosen and rejected answer) as a chat; "
            "default: as one plain text, even if the model has a chat template");
    app.add("!--no-end", arguments.ends_texts,
            "write no end token after texts without a chat template");
    app.add("--max-bad-lines N", arguments.bad_lines_max,
            "the most bad lines to leave out; more are an error")
        .show_default()
        .at_least(0);
    app.add("--force", arguments.force, storage::kForceHelp);
    app.add("--threads N", arguments.threads, "number of threads; 0: one for each processor")
        .show_default()
        .at_least(0);
}

using text::kNotLearned;

struct ShowRowArguments {
    std::string file;
    std::string model;  // the folder with the tokenizer; empty: tokens are shown as numbers
    int64_t row = 0;    // or pair
};

// Returns the number of tokens at the end of a row that are all the last one and teach nothing.
size_t padding_of(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
    size_t padding = 0;
    while (padding + 1 < tokens.size() && tokens[tokens.size() - 1 - padding] == tokens.back() &&
           targets[tokens.size() - 1 - padding] == kNotLearned &&
           targets[tokens.size() - 2 - padding] != tokens.back())
        ++padding;
    return padding;
}

// Returns the text of a row, with its targets in [[double brackets]]; numbers without a tokenizer.
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

// Prints a row, of a file of pairs both rows of one: what is learned stands in [[double brackets]],
// padding is counted. Throws Error{kInput} for a file without rows of tokens and targets, and a row
// that it has not.
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

// Prints rows, tokens, targets that count, and padding; of pairs also whose reference they have.
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

}  // namespace

int data_main(int argc, char** argv) {
    CommandLine app({.does = "Turns text and chats into rows of tokens, and shows them.",
                     .examples = {"dslaunch data prepare chats.jsonl --model DIR "
                                  "-o r.safetensors"},
                     .docs = kDocs},
                    "dslaunch data");
    PrepareArguments prepare;
    std::optional<std::string> long_documents;
    CommandLine& prepare_app = app.subcommand(
        "prepare",
        {.does = "Encodes text and chats with the tokenizer and chat template of a model, and "
                 "writes rows of tokens. Of chats only the answers are learned.",
         .examples = {"dslaunch data prepare c.jsonl --model DIR --context 64 "
                      "--pack -o r.safetensors"},
         .docs = kDocs});
    declare_prepare(prepare_app, prepare, long_documents);
    ShowRowArguments show;
    CommandLine& show_app = app.subcommand(
        "show", {.does = "Prints a row, with learned text in [[double brackets]].",
                 .examples = {"dslaunch data show rows.safetensors --model Qwen2.5-0.5B --row 3"},
                 .docs = kDocs});
    show_app.add("FILE", show.file, "a file of rows").required();
    show_app.add("--model DIR", show.model, "the folder with tokenizer.json");
    show_app.add("--row N", show.row, "number of the row, or of the pair of answers, from 0")
        .show_default();
    std::string stats_file;
    CommandLine& stats_app =
        app.subcommand("stats", {.does = "Prints how many rows, tokens and targets a file has.",
                                 .examples = {"dslaunch data stats rows.safetensors"},
                                 .docs = kDocs});
    stats_app.add("FILE", stats_file, "a file of rows").required();
    if (argc > 1) storage::refuse_download(argv[1], argc > 2 ? argv[2] : "");
    if (!app.parse({argv + 1, argv + argc})) return 0;
    if (app.chose("prepare")) {
        using text::LongDocuments;
        if (long_documents)
            prepare.long_documents = *long_documents == "split" ? LongDocuments::kSplit
                                     : *long_documents == "cut" ? LongDocuments::kCut
                                                                : LongDocuments::kDrop;
        if (!prepare.out.ends_with(".safetensors"))
            fail(ExitCode::kUsage, "--out {}: the name of a file of rows ends with .safetensors",
                 prepare.out);
        prepare.model = storage::tokenizer_folder_at(prepare.model);
        storage::require_new_file(prepare.out, prepare.force);
        std::error_code missing;
        for (const std::string& file : prepare.files)
            if (std::filesystem::equivalent(file, prepare.out, missing))
                fail(ExitCode::kUsage,
                     "--out {}: is read too, and would be lost: name another file", prepare.out);
        Preparation(prepare).run();
    } else if (app.chose("show")) {
        if (!show.model.empty()) show.model = storage::tokenizer_folder_at(show.model);
        show_row(show);
    } else {
        show_stats(stats_file);
    }
    return 0;
}

}  // namespace dslaunch::worker
