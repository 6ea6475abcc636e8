// The options of a server: its address, who may call it, and how a chat becomes a text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "decoder/sample/sampler.h"
#include "server/api_request.h"

namespace dslaunch::server {

// The options that `dslaunch serve` and the model's folder give.
struct ServerOptions {
    std::string host = "127.0.0.1";
    int port = 8000;      // 0 for any free port
    std::string api_key;  // the bearer token that clients must send; empty if they need none
    std::string model;    // the name that clients see
    // Defaults for requests that do not set these options.
    decoder::SamplingOptions sampling;
    std::optional<int64_t> tokens_max;  // largest number of tokens to make
    std::optional<int64_t> length_max;  // or the largest number of tokens in prompt and text
    std::vector<std::string> stops;
    std::optional<int32_t> first_token;  // used instead of an empty prompt
    int64_t context = 0;                 // largest number of tokens in prompt and text together
    int answers_max = 512;               // requests that are answered at once
    int64_t body_bytes_max = int64_t{16} << 20;
    int64_t requests_bytes_max = int64_t{256} << 20;  // memory for all requests
};

// Renders CHAT to the text that the model gets, and returns this text. Rendering takes at most
// about BYTES_MAX of memory. Throws Error{kInput} for messages that the template refuses or that
// need more memory, and for fields that it does not read.
using ChatRenderer = std::function<std::string(const ApiRequest& chat, int64_t bytes_max)>;

}  // namespace dslaunch::server
