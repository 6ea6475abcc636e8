#include "worker/data/line_findings.h"

#include <fmt/core.h>

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "text/chat/row_form.h"

namespace dslaunch::worker {
namespace {

constexpr size_t kReasonsShown = 10;
constexpr size_t kUnreadMax = 64;

}  // namespace

std::string LineFindings::place_of(const SampleLine& line) const {
    return fmt::format("{}:{}", printable(files_[line.file]), line.number);
}

void LineFindings::add(const SampleLine& line, const EncodedLine& encoded) {
    ++formats_[text::chat_format_name(encoded.format)];
    continued_ += encoded.is_continued ? 1 : 0;
    if (encoded.has_empty_answer && empty_answers_++ == 0) first_empty_ = place_of(line);
    if (!encoded.sample.lost.empty()) ++lost_[encoded.sample.lost];
    for (const std::string& column : encoded.unread)
        if (unread_.size() < kUnreadMax) unread_.insert(column);
}

void LineFindings::refuse(const SampleLine& line, const std::string& reason) {
    const std::string where = place_of(line);
    if (++bad_lines_ > bad_lines_max_) {
        tell_repeated();
        fail(ExitCode::kInput,
             "{}: {}; this makes more than {} bad lines (--max-bad-lines allows more)", where,
             printable(reason), bad_lines_max_);
    }
    if (reasons_.size() >= kReasonsShown && !reasons_.contains(reason)) return;
    Reason& said = reasons_[reason];
    if (++said.lines > 1) return;
    said.first = where;
    log_warn("data", "{}: left out: {}", where, without_repeated_list(reason));
}

// Returns REASON. If an earlier reason has listed the columns that dslaunch reads, replaces the
// list in REASON by a short phrase.
std::string LineFindings::without_repeated_list(std::string reason) {
    const size_t at = reason.find(text::kReadColumns);
    if (at != std::string::npos && std::exchange(has_listed_columns_, true))
        reason.replace(at, text::kReadColumns.size(), "these columns");
    return reason;
}

void LineFindings::tell_repeated() const {
    for (const auto& [reason, said] : reasons_)
        if (said.lines > 1)
            log_warn("data", "{} more left out for the same reason as {}",
                     counted(said.lines - 1, "line"), said.first);
}

void LineFindings::tell(bool has_unused_template) const {
    std::string formats;
    for (const auto& [name, lines] : formats_)
        formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", lines, name);
    tell_repeated();
    log_info("data", "lines: {}; {} bad", formats, bad_lines_);
    tell_unread(has_unused_template);
}

void LineFindings::tell_unread(bool has_unused_template) const {
    for (const auto& [part, lines] : lost_)
        log_warn("data",
                 "{} with {}: the model's chat template does not write these parts, so they are "
                 "not learned",
                 counted(lines, "line"), part);
    if (empty_answers_ > 0)
        log_warn("data",
                 "{} with an empty answer, the first at {}: such lines teach the model to say "
                 "nothing; if you do not want that, remove them",
                 counted(empty_answers_, "line"), first_empty_);
    if (!unread_.empty())
        log_info("data", "ignored columns: {}",
                 printable(join(std::vector<std::string>(unread_.begin(), unread_.end()), ", ")));
    if (continued_ > 0 && has_unused_template)
        log_info("data",
                 "{} with a prompt and its continuation: such lines do not use the chat template; "
                 "to use it, add --as-chat",
                 counted(continued_, "line"));
}

}  // namespace dslaunch::worker
