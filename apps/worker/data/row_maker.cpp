#include "worker/data/row_maker.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::worker {

namespace {

// TRL's max_length. Rows are padded to their length, and memory grows with it.
constexpr int64_t kLengthMax = 1024;
constexpr int64_t kLengthStep = 16;

// The positions of the model in FOLDER; 0: not known.
int64_t positions_of(const std::string& folder) {
    if (!storage::model_folder_of(folder)) return 0;
    try {
        return storage::open_model_folder(folder).config.context;
    } catch (const Error&) {
        return 0;  // a model of another kind can have a tokenizer that is known
    }
}

}  // namespace

RowMaker::RowMaker(RowMakerRules rules)
    : rules_(std::move(rules)),
      positions_(positions_of(rules_.model)),
      spool_(rules_.out, rules_.numbers) {
    if (rules_.rows.length == 0) {
        waiting_.emplace(rules_.out);
        return;
    }
    if (positions_ > 0 && rules_.rows.length > positions_)
        log_warn("data", "--context {}: the model has {} positions, and rows are longer",
                 rules_.rows.length, positions_);
    begin_rows(rules_.rows.length);
}

void RowMaker::begin_rows(int64_t length) {
    length_ = length;
    rules_.rows.length = length;
    packer_.emplace(rules_.rows, [this](const text::TokenRow& row) { spool_.add(row); });
    pairs_.emplace(text::PairRules{length, rules_.drops_pairs, rules_.rows.padding},
                   [this](const text::TokenRow& chosen, const text::TokenRow& rejected) {
                       spool_.add(chosen);
                       spool_.add(rejected);
                   });
}

void RowMaker::add(const text::TokenDocument& document) {
    waiting_ ? waiting_->add(document) : packer_->add(document);
}

void RowMaker::add_pair(const text::TokenDocument& chosen, const text::TokenDocument& rejected) {
    is_of_pairs_ = true;
    if (!waiting_) return pairs_->add(chosen, rejected);
    waiting_->add(chosen);
    waiting_->add(rejected);
}

// The length of rows that hold a document of so many TOKENS, as far as the model has positions.
int64_t RowMaker::holding(int64_t tokens) const {
    const int64_t length = (tokens + kLengthStep - 1) / kLengthStep * kLengthStep;
    return positions_ > 0 ? std::min(length, std::max<int64_t>(positions_, 2)) : length;
}

void RowMaker::choose_length() {
    const int64_t longest = waiting_->longest();
    const int64_t length = std::min(holding(std::max<int64_t>(longest, 2)), kLengthMax);
    if (longest > 0)
        log_info("data", "rows of {} tokens: the longest document has {}{} (--context N)", length,
                 longest,
                 longest <= length      ? ""
                 : length == kLengthMax ? fmt::format(", and {} are chosen at most", kLengthMax)
                                        : ", and the model no more positions");
    begin_rows(length);
}

void RowMaker::finish() {
    if (waiting_) {
        choose_length();
        waiting_->begin_reading();
        text::TokenDocument first, second;
        while (waiting_->next(first)) {
            if (!is_of_pairs_) {
                packer_->add(first);
            } else if (waiting_->next(second)) {
                pairs_->add(first, second);
            }
        }
        waiting_.reset();
    }
    packer_->finish();
}

void RowMaker::write(const std::map<std::string, std::string>& metadata) {
    spool_.write(rules_.out, {length_, is_of_pairs_ ? 2 : 1}, metadata);
}

void RowMaker::tell_long(bool text_alone) const {
    const text::PackCounts& rows = packer_->counts();
    const text::PairCounts& pairs = pairs_->counts();
    if (rows.split + rows.cut + rows.dropped + rows.unlearned_rows > 0)
        log_info("data",
                 "longer than a row: {} split, {} cut, {} dropped; {} rows without anything to "
                 "learn left out",
                 rows.split, rows.cut, rows.dropped, rows.unlearned_rows);
    if (pairs.cut + pairs.dropped + pairs.unanswered > 0)
        log_info("data",
                 "pairs longer than a row: {} cut, {} dropped; {} left out, of which a row would "
                 "hold no token of an answer",
                 pairs.cut, pairs.dropped, pairs.unanswered);
    const int64_t longer = rows.split + rows.cut + rows.dropped + pairs.too_long;
    if (longer == 0 || (text_alone && rows.cut + rows.dropped == 0)) return;
    const int64_t longest = std::max(rows.longest, pairs.longest), whole = holding(longest);
    const char* verb = rows.split > 0                     ? "splits"
                       : rows.dropped + pairs.dropped > 0 ? "leaves out"
                                                          : "cuts";
    log_warn(
        "data", "{} of {} {} longer than --context {}; the longest has {} tokens: {}", longer,
        counted(is_of_pairs_ ? pairs.added : rows.documents, is_of_pairs_ ? "pair" : "document"),
        longer == 1 ? "is" : "are", length_, longest,
        whole >= longest
            ? fmt::format("--context {} {} none", whole, verb)
            : fmt::format("the model has {0} positions, so --context {0} at most", positions_));
}

}  // namespace dslaunch::worker
