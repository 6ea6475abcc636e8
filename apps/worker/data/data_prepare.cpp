#include "worker/data/data_prepare.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "kernels/thread_team.h"
#include "storage/huggingface/generation_config.h"
#include "storage/huggingface/model_folder.h"
#include "storage/tables/row_origin.h"
#include "text/chat/chat_line.h"
#include "text/rows/encode_sample.h"
#include "worker/data/row_maker.h"
#include "worker/data/sample_lines.h"
#include "worker/processors.h"

namespace dslaunch::worker {

namespace {

constexpr int64_t kBadLinesShown = 10;
constexpr size_t kUnreadMax = 64;
constexpr int64_t kMegabyte = 1'000'000;

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
        const text::PackCounts& counts = rows_.rows();
        if (counts.rows + rows_.pairs().pairs == 0)
            fail(ExitCode::kInput, "{}: {} gave a row ({}{})", printable(arguments_.files.front()),
                 lines_.bytes() == 0 ? "it is empty, and no line" : "no line",
                 counted(bad_lines_, "bad line"),
                 counts.unlearned_rows + rows_.pairs().unanswered > 0
                     ? "; nothing in the others is to be learned"
                     : "");
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

    // 0: not known.
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

    // The tokens that end a text: the tokenizer's own first, as TRL takes it, then the model's.
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

    // All lines are of the kind of the first good one.
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
        if (++bad_lines_ > arguments_.bad_lines_max)
            fail(ExitCode::kInput,
                 "{}: {}; with it more than {} lines are bad (--max-bad-lines allows more)", where,
                 printable(reason), arguments_.bad_lines_max);
        if (bad_lines_ <= kBadLinesShown) log_warn("data", "{}: left out: {}", where, reason);
    }

    [[nodiscard]] double megabytes_a_second() const {
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
        return static_cast<double>(lines_.bytes()) / 1e6 / std::max(seconds.count(), 1e-9);
    }

    void finish() const {
        std::string formats;
        for (const auto& [name, lines] : formats_)
            formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", lines, name);
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
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    Progress progress_;
};

}  // namespace

void prepare_data(const PrepareArguments& arguments) {
    Preparation(arguments).run();
}

}  // namespace dslaunch::worker
