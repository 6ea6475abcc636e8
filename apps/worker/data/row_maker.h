// Documents and pairs of answers as rows of one length, which is chosen where it is not given. Data
// path: encode_sample.h -> [here] -> a file of rows. Blocks on the disk; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "text/rows/pair_maker.h"
#include "text/rows/row_packer.h"
#include "worker/data/document_spool.h"
#include "worker/data/row_spool.h"

namespace dslaunch::worker {

struct RowMakerRules {
    text::PackRules rows;      // length 0: by the longest document
    bool numbers = false;      // rows have a column `documents`
    bool drops_pairs = false;  // those with a text longer than a row
    std::string out;           // the file of rows
    std::string model;         // its folder
};

class RowMaker {
  public:
    // All functions throw Error{kDisk}.
    explicit RowMaker(RowMakerRules rules);

    // REQUIRES: at least two tokens each; documents or pairs alone.
    void add(const text::TokenDocument& document);
    void add_pair(const text::TokenDocument& chosen, const text::TokenDocument& rejected);
    // Makes the rows of all that was added. REQUIRES: called once, before the functions below.
    void finish();

    [[nodiscard]] int64_t length() const { return length_; }
    [[nodiscard]] const text::PackCounts& rows() const { return packer_->counts(); }
    [[nodiscard]] const text::PairCounts& pairs() const { return pairs_->counts(); }

    void write(const std::map<std::string, std::string>& metadata);
    // Says what became of documents longer than a row, and which rows would hold them. TEXT_ALONE:
    // they are texts, of which nothing is lost where they go on in another row.
    void tell_long(bool text_alone) const;

  private:
    void begin_rows(int64_t length);
    void choose_length();
    [[nodiscard]] int64_t holding(int64_t tokens) const;

    RowMakerRules rules_;
    int64_t positions_;  // of the model; 0: not known
    int64_t length_ = 0;
    bool is_of_pairs_ = false;
    RowSpool spool_;
    std::optional<text::RowPacker> packer_;
    std::optional<text::PairMaker> pairs_;
    std::optional<DocumentSpool> waiting_;  // until the length is known
};

}  // namespace dslaunch::worker
