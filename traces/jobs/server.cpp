// Like a server: acceptors read requests, workers answer them from caches, one sender sends the answers. So most blocks
// are freed by another thread than the one that made them. server REQUESTS prints a checksum, and makes
// the same calls in every run, whatever the order of the threads.
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

constexpr int ACCEPTORS = 2;
constexpr int WORKERS = 3;
constexpr size_t CACHE_ENTRIES_MAX = 300;
constexpr size_t UNSENT_MAX = 256;

// A queue through the messages themselves: its length changes no number of calls. It holds up who is too fast.
template <typename Message> class Queue {
public:
    void put(std::unique_ptr<Message> message) {
        std::unique_lock lock(mutex);
        room.wait(lock, [&] { return length < UNSENT_MAX; });
        Message *added = message.release();
        (last ? last->next : first) = added;
        last = added;
        length++;
        some.notify_one();
    }
    std::unique_ptr<Message> take() {
        std::unique_lock lock(mutex);
        some.wait(lock, [&] { return first != nullptr; });
        std::unique_ptr<Message> message(first);
        first = message->next;
        if (!first) last = nullptr;
        length--;
        room.notify_one();
        return message;
    }

private:
    std::mutex mutex;
    std::condition_variable some, room;
    Message *first = nullptr, *last = nullptr;
    size_t length = 0;
};

struct Request {
    Request *next = nullptr;
    int acceptor = 0;
    bool end = false;
    std::string path;
    std::map<std::string, std::string> headers;
    std::vector<char> body;
};

struct Answer {
    Answer *next = nullptr;
    bool end = false;
    std::string head;
    std::shared_ptr<const std::vector<char>> body;
};

class Random {
public:
    explicit Random(uint64_t seed) : state(seed) {}
    uint64_t below(uint64_t bound) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % bound;
    }

private:
    uint64_t state;
};

// The entries used last, of one acceptor's requests: what is evicted does not depend on the other acceptors.
class Cache {
public:
    std::shared_ptr<const std::vector<char>> get(const Request &request) {
        auto found = entries.find(request.path);
        if (found != entries.end()) {
            order.splice(order.begin(), order, found->second.place);
            return found->second.body;
        }
        auto body = std::make_shared<std::vector<char>>(request.body);
        body->resize(body->size() + request.path.size() * 8, 'x');
        order.push_front(request.path);
        entries[request.path] = {order.begin(), body};
        if (entries.size() > CACHE_ENTRIES_MAX) {
            entries.erase(order.back());
            order.pop_back();
        }
        return body;
    }

private:
    struct Entry {
        std::list<std::string>::iterator place;
        std::shared_ptr<const std::vector<char>> body;
    };
    std::list<std::string> order;
    std::unordered_map<std::string, Entry> entries;
};

static Queue<Request> requests[WORKERS];
static Queue<Answer> answers;

static void accept(int acceptor, uint64_t count) {
    Random random(acceptor + 1);
    for (uint64_t i = 0; i < count; i++) {
        auto request = std::make_unique<Request>();
        uint64_t item = random.below(40) * random.below(40);
        request->acceptor = acceptor;
        request->path = "/items/of/a/long/path/" + std::to_string(item);
        for (uint64_t header = random.below(5); header > 0; header--)
            request->headers["x-header-" + std::to_string(header)] = std::string(random.below(60), 'v');
        request->body.resize(random.below(8) == 0 ? random.below(20000) : random.below(300));
        requests[item % WORKERS].put(std::move(request));
    }
    for (auto &queue : requests) {
        auto request = std::make_unique<Request>();
        request->end = true;
        queue.put(std::move(request));
    }
}

static void work(int worker) {
    Cache caches[ACCEPTORS];
    for (int ended = 0; ended < ACCEPTORS;) {
        auto request = requests[worker].take();
        auto answer = std::make_unique<Answer>();
        answer->end = request->end;
        ended += request->end;
        if (!request->end) {
            answer->body = caches[request->acceptor].get(*request);
            answer->head = "200 " + request->path + " " + std::to_string(request->headers.size());
        }
        if (!answer->end || ended == ACCEPTORS) answers.put(std::move(answer));
    }
}

int main(int argc, char **argv) {
    const uint64_t count = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1000;
    std::vector<std::thread> threads;
    for (int acceptor = 0; acceptor < ACCEPTORS; acceptor++) threads.emplace_back(accept, acceptor, count);
    for (int worker = 0; worker < WORKERS; worker++) threads.emplace_back(work, worker);
    uint64_t sent = 0, bytes = 0, sum = 0;
    for (int ended = 0; ended < WORKERS;) {
        auto answer = answers.take();
        ended += answer->end;
        if (answer->end) continue;
        std::vector<char> wire(answer->head.begin(), answer->head.end());
        wire.insert(wire.end(), answer->body->begin(), answer->body->end());
        sent++;
        bytes += wire.size();
        uint64_t hash = 14695981039346656037u;
        for (char byte : wire) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
        sum += hash;
    }
    for (auto &thread : threads) thread.join();
    printf("%llu answers, %llu bytes, %016llx\n", (unsigned long long)sent, (unsigned long long)bytes, (unsigned long long)sum);
}
