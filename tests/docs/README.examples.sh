# what the commands before the example have made
shapes images --count 300
packimg convert images/train -o my-train.pimg
