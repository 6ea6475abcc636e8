// Turns documents and pairs of answers into rows of equal length; the length is chosen if it is not
// given. The documents are kept on disk first, because the longest one decides the length, and
// because a .safetensors file begins with the number of its rows. Data path: encode_sample.h ->
// [here] -> a file of rows. Blocks on the disk; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/fd.h"
#include "text/rows/pair_maker.h"
#include "text/rows/row_packer.h"

namespace dslaunch::worker {

// Stores documents of tokens in an unnamed file, in the folder that contains BESIDE. All functions
// throw Error{kDisk}.
class DocumentSpool {
  public:
    explicit DocumentSpool(const std::string& beside);

    // REQUIRES: reading has not begun.
    void add(const text::TokenDocument& document);
    // Returns the number of tokens in the longest document so far.
    [[nodiscard]] int64_t longest() const { return longest_; }

    // Starts reading at the first document. May be called several times. After the first call, no
    // document may be added.
    void begin_reading();
    // Reads the next document into DOCUMENT, in the order of adding. Returns false at the end.
    [[nodiscard]] bool next(text::TokenDocument& document);

  private:
    void write_buffer();
    void read(void* into, size_t bytes);

    UniqueFd file_;
    std::string path_;
    std::string buffer_;
    size_t at_ = 0;  // the reading position in buffer_
    bool reading_ = false;
    int64_t longest_ = 0;
    int64_t added_ = 0, taken_ = 0;
};

// The form of the rows, and the file that they are written into.
struct RowMakerRules {
    text::PackRules rows;      // length 0: the longest document decides
    bool numbers = false;      // rows have a column `documents`
    bool drops_pairs = false;  // pairs with a text longer than a row are dropped
    std::string out;           // the file of rows
    std::string model;         // the model's folder
};

// The limits that a model sets to its rows; 0: not known.
struct ModelLimits {
    int64_t positions = 0;
    int64_t vocabulary = 0;
};

// Collects documents or pairs, and writes their rows.
class RowMaker {
  public:
    // All functions of this class throw Error{kDisk}.
    explicit RowMaker(RowMakerRules rules);

    // REQUIRES: each document has at least two tokens. An object is used either for add() or for
    // add_pair(), not for both.
    void add(const text::TokenDocument& document);
    void add_pair(const text::TokenDocument& chosen, const text::TokenDocument& rejected);
    // Chooses the length, if it is not given, and counts the rows. REQUIRES: called once, before
    // the functions below.
    void finish();

    // Returns the number of tokens in a row.
    [[nodiscard]] int64_t length() const { return rules_.rows.length; }
    // Return the counts of the rows, and of the pairs; one of the two is empty.
    [[nodiscard]] const text::PackCounts& rows() const { return rows_; }
    [[nodiscard]] const text::PairCounts& pairs() const { return pairs_; }

    // Writes all rows as columns of a file. The shape of a column is [rows, length], or [pairs, 2,
    // length] for pairs.
    void write(const std::map<std::string, std::string>& metadata);
    // Reports what happened to documents longer than a row, and the row length that they would fit.
    // TEXT_ALONE: all documents are plain texts, which lose nothing if they continue in another
    // row.
    void tell_long(bool text_alone) const;
    // Warns of tokens for which the model has no embedding.
    void tell_unknown_tokens() const;

  private:
    void choose_length();
    [[nodiscard]] int64_t holding(int64_t tokens) const;
    void make_rows(const text::RowPacker::Use& use);

    RowMakerRules rules_;
    ModelLimits limits_;
    struct {
        int64_t documents = 0;
        int32_t token = 0;  // the largest one
    } unknown_;             // tokens for which the model has no embedding
    bool of_pairs_ = false;
    DocumentSpool documents_;
    text::PackCounts rows_;
    text::PairCounts pairs_;
};

}  // namespace dslaunch::worker
