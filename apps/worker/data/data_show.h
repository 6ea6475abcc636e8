// `dslaunch data show` and `data stats`: what a file of rows holds, as text and as numbers. Data
// path: .safetensors -> [here] -> stdout. No threads.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::worker {

struct ShowRowArguments {
    std::string file;
    std::string model;  // the folder with the tokenizer; empty: tokens are shown as numbers
    int64_t row = 0;    // or pair
};

// Prints a row, of a file of pairs both rows of one: what is learned stands in [[double brackets]],
// padding is counted. Throws Error{kInput} for a file without rows of tokens and targets, and a row
// that it has not.
void show_row(const ShowRowArguments& arguments);

// Prints rows, tokens, targets that count, and padding; of pairs also whose reference they have.
void show_stats(const std::string& file);

}  // namespace dslaunch::worker
