import os

data = [bytearray(3000) for _ in range(8000)]
for round in range(3):
    child = os.fork()
    if child == 0:
        for block in data[:: round + 2]:
            block[0] = 1
        more = [bytes(5000) for _ in range(1000)]
        os._exit(0)
    os.waitpid(child, 0)
    for block in data[:: round + 1]:
        block[2000] = 2
