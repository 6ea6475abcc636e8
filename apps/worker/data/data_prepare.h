// `dslaunch data prepare`: lines of training text -> rows of tokens and targets that a model trains
// on; lines of two answers -> pairs of rows. Lines are encoded by several threads, and rows come in
// the order of the lines whatever their number. Data path: .jsonl -> lib/text -> a .safetensors
// file of rows. Blocks on the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/rows/row_packer.h"

namespace dslaunch::worker {

struct PrepareArguments {
    std::vector<std::string> files;  // of lines of JSON; "-" is stdin
    std::string model;               // the folder with the tokenizer and the chat template
    std::string out;
    text::PackRules rows;  // but for long_documents; length 0: by the longest document
    std::optional<text::LongDocuments> long_documents;  // unset: split, and pairs are cut
    bool learns_all = false;
    bool makes_chats = false;  // of a prompt and its completion that are texts, too
    bool keeps_apart = true;   // packed rows tell the model which tokens are of one document
    bool ends_texts = true;    // the model's end token goes behind what no template has ended
    int64_t bad_lines_max = 100;
    int64_t threads = 0;  // 0: one for each processor
    bool force = false;   // replaces a file OUT
};

// Writes ARGUMENTS.out, whole or not at all, and says what was found. Throws Error{kInput} for
// files that cannot be read, a file OUT without `force`, too many bad lines, or no row;
// Error{kDisk}.
void prepare_data(const PrepareArguments& arguments);

}  // namespace dslaunch::worker
