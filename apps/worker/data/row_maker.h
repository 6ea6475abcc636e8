// Documents and pairs of answers as rows of one length, which is chosen if it is not given. They
// wait on the disk: the longest decides the length, and a .safetensors file begins with the number
// of its rows. Data path: encode_sample.h -> [here] -> a file of rows. Blocks on the disk; one
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/fd.h"
#include "text/rows/pair_maker.h"
#include "text/rows/row_packer.h"

namespace dslaunch::worker {

// Documents of tokens in a file without a name, in the folder of BESIDE. All functions throw
// Error{kDisk}.
class DocumentSpool {
  public:
    explicit DocumentSpool(const std::string& beside);

    // REQUIRES: reading has not begun.
    void add(const text::TokenDocument& document);
    // Returns the tokens of the longest document so far.
    [[nodiscard]] int64_t longest() const { return longest_; }

    // Ends adding; reading begins with the first document, also a second time.
    void begin_reading();
    // Makes DOCUMENT the next one, in the order of adding. Returns false at the end.
    [[nodiscard]] bool next(text::TokenDocument& document);

  private:
    void write_buffer();
    void read(void* into, size_t bytes);

    UniqueFd file_;
    std::string path_;
    std::string buffer_;
    size_t at_ = 0;  // in buffer_, while reading
    bool reading_ = false;
    int64_t longest_ = 0;
    int64_t added_ = 0, taken_ = 0;
};

struct RowMakerRules {
    text::PackRules rows;      // length 0: by the longest document
    bool numbers = false;      // rows have a column `documents`
    bool drops_pairs = false;  // drops pairs with a text longer than a row
    std::string out;           // the file of rows
    std::string model;         // its folder
};

class RowMaker {
  public:
    // All functions throw Error{kDisk}.
    explicit RowMaker(RowMakerRules rules);

    // REQUIRES: at least two tokens each; documents or pairs alone.
    void add(const text::TokenDocument& document) { documents_.add(document); }
    void add_pair(const text::TokenDocument& chosen, const text::TokenDocument& rejected);
    // Chooses the length, if it is not given, and counts the rows. REQUIRES: called once, before
    // the functions below.
    void finish();

    [[nodiscard]] int64_t length() const { return rules_.rows.length; }
    [[nodiscard]] const text::PackCounts& rows() const { return rows_; }
    [[nodiscard]] const text::PairCounts& pairs() const { return pairs_; }

    // Writes all rows as the columns of a file: [rows, length], or of pairs [pairs, 2, length].
    void write(const std::map<std::string, std::string>& metadata);
    // Says what became of documents longer than a row, and which rows would hold them. TEXT_ALONE:
    // they are texts, which lose nothing when they go on in another row.
    void tell_long(bool text_alone) const;

  private:
    void choose_length();
    [[nodiscard]] int64_t holding(int64_t tokens) const;
    void make_rows(const text::RowPacker::Use& use);

    RowMakerRules rules_;
    int64_t positions_;  // of the model; 0: not known
    bool of_pairs_ = false;
    DocumentSpool documents_;
    text::PackCounts rows_;
    text::PairCounts pairs_;
};

}  // namespace dslaunch::worker
