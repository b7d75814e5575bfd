% Octave: linear algebra, Fourier transforms, text and files, again and again until a file is there, for a second at
% least. Every result must be that of the first time, before "started", to the last bit.
% usage: octave-cli octave.m FILE
% A statement first: a file that begins with a function is not run, but defines it.
1;

function results = compute()
    rand("twister", 1);
    matrix = rand(150);
    values = eig(matrix);
    spectrum = fft(rand(1, 4096));
    [l, u, p] = lu(matrix);
    solution = matrix \ (1:150)';
    area = quad(@(x) exp(-x ^ 2), 0, 1);
    solved = lsode(@(x, t) [x(2); -x(1)], [1; 0], 0:0.1:10);
    results = {values, spectrum, l * u - p * matrix, solution, area, solved, svd(matrix)};
    file = tempname();
    save("-binary", file, "results");
    kept = load(file);
    unlink(file);
    if !isequal(kept.results, results)
        error("a file has other numbers than were saved");
    end
    [status, text] = system("seq 100 | sort -n -r | head -n 3");
    results{end + 1} = text;
    results{end + 1} = hash("sha256", num2hex(solution)(:)');
end

from = time();
right = compute();
printf("started\n");
fflush(stdout);
turns = wrong = 0;
while time() - from < 1 || !isfile(argv(){end})
    wrong += !isequal(compute(), right);
    turns++;
end
if wrong
    printf("octave: %d of %d wrong\n", wrong, turns);
else
    printf("octave: right\n");
end
