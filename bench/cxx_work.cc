// A multi-threaded C++ program with a varied and steady mix of work: sorting, maps of strings, virtual calls, a matrix product.
// cxx_work SECONDS THREADS [FILE]: turns are counted in FILE, if there is one (workcounter.h).
#include "workcounter.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#define KEEP __attribute__((noinline, noclone))

namespace work
{

struct random_numbers {
    std::uint64_t state;
    KEEP std::uint64_t next()
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return state >> 33;
    }
};

KEEP void sort_numbers(random_numbers &random)
{
    std::vector<std::uint64_t> numbers(20000);
    for (auto &number : numbers)
        number = random.next();
    std::sort(numbers.begin(), numbers.end());
}

KEEP std::size_t count_words(random_numbers &random)
{
    std::map<std::string, int> counts;
    for (int i = 0; i < 6000; i++)
        counts["word number " + std::to_string(random.next() % 900)]++;
    return counts.size();
}

struct shape {
    virtual ~shape() = default;
    virtual double area(double factor) const = 0;
};

struct circle : shape {
    KEEP double area(double factor) const override
    {
        double sum = 0;
        for (int i = 0; i < 40; i++)
            sum += factor * i * 3.14159;
        return sum;
    }
};

struct polygon : shape {
    KEEP double area(double factor) const override
    {
        double sum = 1;
        for (int i = 1; i < 60; i++)
            sum = sum * factor / i + 1;
        return sum;
    }
};

KEEP double add_areas(random_numbers &random)
{
    std::vector<std::unique_ptr<shape>> shapes;
    for (int i = 0; i < 8000; i++) {
        if (random.next() & 1)
            shapes.emplace_back(std::make_unique<circle>());
        else
            shapes.emplace_back(std::make_unique<polygon>());
    }
    double sum = 0;
    for (const auto &each : shapes)
        sum += each->area(1.5);
    return sum;
}

template <typename T> KEEP T multiply(const std::vector<T> &a, const std::vector<T> &b, std::size_t size)
{
    T trace = 0;
    for (std::size_t i = 0; i < size; i++)
        for (std::size_t j = 0; j < size; j++) {
            T sum = 0;
            for (std::size_t k = 0; k < size; k++)
                sum += a[i * size + k] * b[k * size + j];
            trace += i == j ? sum : 0;
        }
    return trace;
}

KEEP void run(double seconds, std::uint64_t seed, volatile double &sink, std::uint64_t *turns)
{
    using clock = std::chrono::steady_clock;
    auto end = clock::now() + std::chrono::duration<double>(seconds);
    random_numbers random{seed};
    std::vector<double> matrix(90 * 90, 1.25);
    std::function<double()> product = [&matrix] { return multiply(matrix, matrix, 90); };
    while (clock::now() < end) {
        sort_numbers(random);
        sink = sink + static_cast<double>(count_words(random)) + add_areas(random) + product();
        workcounter_add(turns);
    }
}

} // namespace work

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? std::atof(argv[1]) : 10;
    int count = argc > 2 ? std::atoi(argv[2]) : 2;
    std::vector<std::thread> threads;
    std::vector<double> sinks(static_cast<std::size_t>(count));
    std::uint64_t uncounted = 0;
    std::uint64_t *turns = argc > 3 ? workcounter_open(argv[3]) : &uncounted;
    if (!turns)
        return 1;
    std::cout << "ready" << std::endl;
    for (int i = 0; i < count; i++)
        threads.emplace_back([&, i] {
            volatile double sink = 0;
            work::run(seconds, static_cast<std::uint64_t>(i) + 1, sink, turns);
            sinks[static_cast<std::size_t>(i)] = sink;
        });
    for (auto &thread : threads)
        thread.join();
    return sinks.empty() ? 1 : 0;
}
