#include "decoder/decode/batch.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace dslaunch::decoder {

namespace {

// A reader of a sequence of 32-bit numbers.
class NumberReader {
  public:
    explicit NumberReader(std::string_view bytes) : bytes_(bytes) {}

    int32_t next() {
        int32_t number = 0;
        if (bytes_.size() < sizeof number)
            fail(ExitCode::kDiverged,
                 "a batch from rank 0 is too short: the ranks run different builds of dslaunch");
        std::memcpy(&number, bytes_.data(), sizeof number);
        bytes_.remove_prefix(sizeof number);
        return number;
    }
    // Reads the number of the items that follow. Each item has at least BYTES bytes.
    size_t count(size_t bytes) {
        const int32_t number = next();
        if (number < 0 || static_cast<size_t>(number) > bytes_.size() / bytes)
            fail(ExitCode::kDiverged,
                 "a batch from rank 0 is not valid: the ranks run different builds of dslaunch");
        return static_cast<size_t>(number);
    }
    [[nodiscard]] bool ended() const { return bytes_.empty(); }

  private:
    std::string_view bytes_;
};

void append(std::string& bytes, int64_t number) {
    const auto narrow = static_cast<int32_t>(number);
    bytes.append(reinterpret_cast<const char*>(&narrow), sizeof narrow);
}

constexpr size_t kRowNumbers = 5;

}  // namespace

int64_t Batch::logits_rows() const {
    return std::ranges::count_if(rows, [](const BatchRow& row) { return row.wants_logits; });
}

std::string batch_bytes(const Batch& batch) {
    std::string bytes;
    append(bytes, std::ssize(batch.rows));
    for (const BatchRow& row : batch.rows) {
        append(bytes, row.token);
        append(bytes, row.position);
        append(bytes, row.sequence);
        append(bytes, row.length);
        append(bytes, row.wants_logits ? 1 : 0);
    }
    append(bytes, std::ssize(batch.sequences));
    for (const BatchSequence& sequence : batch.sequences) {
        append(bytes, std::ssize(sequence.pages));
        for (const int32_t page : sequence.pages) append(bytes, page);
    }
    return bytes;
}

Batch parse_batch(std::string_view bytes) {
    NumberReader reader(bytes);
    Batch batch;
    batch.rows.resize(reader.count(kRowNumbers * sizeof(int32_t)));
    for (BatchRow& row : batch.rows) {
        row.token = reader.next();
        row.position = reader.next();
        row.sequence = reader.next();
        row.length = reader.next();
        row.wants_logits = reader.next() != 0;
    }
    batch.sequences.resize(reader.count(sizeof(int32_t)));
    for (BatchSequence& sequence : batch.sequences) {
        sequence.pages.resize(reader.count(sizeof(int32_t)));
        for (int32_t& page : sequence.pages) page = reader.next();
    }
    if (!reader.ended())
        fail(ExitCode::kDiverged,
             "a batch from rank 0 is too long: the ranks run different builds of dslaunch");
    return batch;
}

}  // namespace dslaunch::decoder
