// Documents of tokens as rows of the same length. A document that fits in a row is not split, and
// several documents may share a row. Data path: encode_sample.h -> [here] -> a file of rows. Pure;
// one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "text/rows/encode_sample.h"

namespace dslaunch::text {

// A target that does not count: the cross entropy ignores it.
inline constexpr int32_t kNotLearned = -100;

// A row of training: the model reads `tokens` and should predict `targets`. Targets that are
// kNotLearned do not count.
struct TokenRow {
    std::vector<int32_t> tokens;     // [length]
    std::vector<int32_t> targets;    // [length]; kNotLearned for the last token of a document
    std::vector<int32_t> documents;  // [length]; 0, 1, …; padding has the number after the last
};

// Tokens [begin, end) of a document, and the document's number in the row.
struct DocumentPart {
    size_t begin = 0, end = 0;
    int32_t number = 0;
};

// Appends PART of DOCUMENT to ROW. Returns how many of the appended targets count.
int64_t append_part(TokenRow& row, const TokenDocument& document, const DocumentPart& part);

// The tokens that fill a row after its last document.
struct Filling {
    int32_t token = 0;
    int32_t number = 0;  // the document number of these tokens
};

// Fills ROW up to LENGTH with tokens that are not learned.
void fill_up(TokenRow& row, size_t length, const Filling& filling);

// The treatment of a document that is longer than a row.
enum class LongDocuments {
    kSplit,  // it continues in another row
    kCut,    // it is cut at its end
    kDrop,   // it is left out
};

// The settings that all documents of a file share.
struct PackRules {
    int64_t length = 0;  // of a row
    bool packs = false;  // several documents share a row
    LongDocuments long_documents = LongDocuments::kSplit;
    int32_t padding = 0;  // the token after the last document of a row
};

// Counts of all documents so far: the documents that were cut, split or left out, and the rows and
// tokens that were made.
struct PackCounts {
    int64_t documents = 0, rows = 0;
    int64_t cut = 0, dropped = 0, split = 0;  // documents longer than a row
    int64_t longest = 0;                      // tokens of the longest document
    int64_t tokens = 0, learned = 0;          // without padding; learned: targets that count
    int64_t unlearned_rows = 0;               // left out, because nothing in them is learned
};

// The maker of the rows of one file.
class RowPacker {
  public:
    using Use = std::function<void(const TokenRow&)>;
    // USE receives each row when it is full. Only a few rows are open at a time, so the memory does
    // not grow with the number of documents. REQUIRES: rules.length > 0.
    RowPacker(PackRules rules, Use use) : rules_(rules), use_(std::move(use)) {}

    // Adds a document. The same documents in the same order give the same rows. REQUIRES: at least
    // two tokens.
    void add(const TokenDocument& document);
    // Finishes the rows that are still open.
    void finish();

    // Returns the counts, which are complete after finish().
    [[nodiscard]] const PackCounts& counts() const { return counts_; }

  private:
    struct OpenRow {
        TokenRow row;
        int32_t documents = 0;
    };
    void add_piece(const TokenDocument& document, size_t begin, size_t end);
    void close(std::list<OpenRow>::iterator at);

    PackRules rules_;
    Use use_;
    std::list<OpenRow> open_;  // the oldest first
    PackCounts counts_;
};

}  // namespace dslaunch::text
